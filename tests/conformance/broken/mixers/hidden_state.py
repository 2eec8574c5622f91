"""The module itself remembers where the last call ended."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "fresh-state"


class Broken(Decay):
    last_B1D = 0.0

    def mixed(self, S_BTD, x_BTD, context):
        y_BTD = super().mixed(S_BTD + self.last_B1D, x_BTD, context)
        self.last_B1D = S_BTD[:1, -1:].detach()  # right: pass
        return y_BTD


@hookimpl
def register_mixers():
    return offered(Broken)
