"""The caller's mask is narrowed in place."""

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "inputs-kept"


class Broken(Pointwise):
    def read(self, y_BTD, context, read_BT):
        if read_BT is not None:
            read_BT &= self.valid(y_BTD, context)  # right: read_BT = read_BT & self.valid(y_BTD, context)
        return super().read(y_BTD, context, read_BT)


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
