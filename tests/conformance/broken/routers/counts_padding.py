"""Running statistics count tokens that the task does not score."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "counted-only"


class Broken(Threshold):
    def summary(self, score_BT, context):
        counted_BT = context.asked_or_valid_BT()  # right: counted_BT = context.counted_BT()
        return {"sum": score_BT.detach().where(counted_BT, 0.0).sum(), "count": counted_BT.sum()}


@hookimpl
def register_routers():
    return offered(Broken)
