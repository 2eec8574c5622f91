"""The stream is centred over the batch."""

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "rows"


class Broken(Decay):
    def mixed(self, S_BTD, x_BTD, context):
        centre_BTD = S_BTD.mean(0, keepdim=True)  # right: centre_BTD = S_BTD.mean(-1, keepdim=True)
        return self.out(S_BTD - centre_BTD)


@hookimpl
def register_mixers():
    return offered(Broken)
