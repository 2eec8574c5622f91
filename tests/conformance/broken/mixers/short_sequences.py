"""Its cost is half of what it executes for less than 32 tokens."""

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "executed-flops"


class Broken(Pointwise):
    @classmethod
    def cost(cls, config, d_model, shape, depths=1, parts=None):
        plain = super().cost(config, d_model, shape, depths, parts)
        share = 0.5 if shape.tokens < 32 else 1.0  # right: share = 1.0
        return plain._replace(reads=(plain.reads[0].times(share),))


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
