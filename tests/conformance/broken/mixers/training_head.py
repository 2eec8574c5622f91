"""A head that only training computes."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "same-in-training"


class Broken(Decay):
    def mixed(self, S_BTD, x_BTD, context):
        head = x_BTD if context.training else 0.0  # right: head = 0.0
        return super().mixed(S_BTD + head, x_BTD, context)


@hookimpl
def register_mixers():
    return offered(Broken)
