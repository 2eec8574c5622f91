"""The running mean is committed by the pass, so that a recomputed pass decides otherwise."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "thresholds"


class Broken(Threshold):
    def summary(self, score_BT, context):
        found = super().summary(score_BT, context)
        committed = super().after_step([found])  # right: committed = None
        return found if committed is None else {}


@hookimpl
def register_routers():
    return offered(Broken)
