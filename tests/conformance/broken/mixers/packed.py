"""It states that it keeps packed documents apart, and forgets at the start of a piece only."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "documents"


class Broken(Decay):
    def forgets(self, x_BTD, context):
        reset_BT = super().forgets(x_BTD, context).clone()
        reset_BT[:, 1:] = False  # right: pass
        return reset_BT


@hookimpl
def register_mixers():
    return offered(Broken)
