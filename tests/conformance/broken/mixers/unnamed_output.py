"""A path into the stream that is not named as output."""

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "outputs"


class Broken(Pointwise):
    def mix(self, x_BTD, context):
        y_BTD = super().mix(x_BTD, context)
        return y_BTD + x_BTD  # right: return y_BTD


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
