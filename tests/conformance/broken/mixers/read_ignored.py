"""Tokens that do not read have an output all the same."""

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "read"


class Broken(Pointwise):
    def read(self, y_BTD, context, read_BT):
        return super().read(y_BTD, context, None)  # right: return super().read(y_BTD, context, read_BT)


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
