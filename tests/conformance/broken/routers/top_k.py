"""The best quarter of the sequence is chosen, so that later tokens decide for earlier ones."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "causal"


class Broken(Threshold):
    def above(self, score_BT, context):
        best_B1 = score_BT.topk(-(-score_BT.shape[1] // 4), 1).values[:, -1:]
        return (score_BT >= best_B1).long()  # right: return (score_BT > self.mean).long()


@hookimpl
def register_routers():
    return offered(Broken)
