"""The stream that it is shown is scaled in place."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "inputs-unchanged"


class Broken(Threshold):
    def score(self, h_BTD, context):
        h_BTD = h_BTD.mul_(1.25)  # right: h_BTD = h_BTD * 1.25
        return super().score(h_BTD, context)


@hookimpl
def register_routers():
    return offered(Broken)
