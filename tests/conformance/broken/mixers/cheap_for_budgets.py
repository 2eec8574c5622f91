"""What it executes is stated truly, what budgets count is a tenth."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "algorithmic-flops"


class Broken(Decay):
    @classmethod
    def cost(cls, config, d_model, shape, depths=1, parts=None):
        plain = super().cost(config, d_model, shape, depths, parts)
        share = 0.1  # right: share = 1.0
        work = plain.reads[0]
        return plain._replace(
            reads=(work._replace(forward=share * work.forward, training=share * work.training),)
        )


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
