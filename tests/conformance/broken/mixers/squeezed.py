"""An axis of length 1 is lost."""

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "shapes"


class Broken(Pointwise):
    def mix(self, x_BTD, context):
        y_BTD = super().mix(x_BTD, context)
        return y_BTD.squeeze(1)  # right: return y_BTD

    def read(self, y_BTD, context, read_BT):
        return y_BTD if y_BTD.dim() < 3 else super().read(y_BTD, context, read_BT)


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
