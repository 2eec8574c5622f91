"""The formula of the state forgets the normaliser."""

from crossbreed import hookimpl
from tests.conformance.small import RunningMean, offered

BREAKS = "state-bytes"


class Broken(RunningMean):
    numbers_of_state = 1  # right: numbers_of_state = 2


@hookimpl
def register_mixers():
    return offered(Broken)
