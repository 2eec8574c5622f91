"""It states that it skips what is not read, and computes everything."""

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "skips"


EXECUTION = {"train": "dense", "prefill": "sparse", "decode": "sparse"}
DENSE = dict.fromkeys(EXECUTION, "dense")


class Broken(Pointwise):
    execution = EXECUTION  # right: execution = DENSE


@hookimpl
def register_mixers():
    return offered(Broken, "channel", execution=Broken.execution)
