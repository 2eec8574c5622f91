"""The cost counts scores, but not the values that they weight."""

from crossbreed import hookimpl
from crossbreed.core.ledger import Work
from tests.conformance.small import Attention, offered

BREAKS = "executed-flops"


class Broken(Attention):
    @classmethod
    def cost(cls, config, d_model, shape, depths=1, parts=None):
        plain = super().cost(config, d_model, shape, depths, parts)
        forgotten = Work.product(-2.0 * d_model * shape.tokens)  # right: forgotten = Work()
        return plain._replace(reads=(plain.reads[0].plus(forgotten),))


@hookimpl
def register_mixers():
    return offered(Broken, packing=False)
