"""Scores are centred over the rows of the batch in evaluation."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "rows"


class Broken(Threshold):
    def above(self, score_BT, context):
        if not context.training:
            score_BT = score_BT - score_BT.mean(0, keepdim=True)  # right: score_BT = score_BT - 0.01
        return super().above(score_BT, context)


@hookimpl
def register_routers():
    return offered(Broken)
