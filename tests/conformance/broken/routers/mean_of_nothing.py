"""The loss of a step in which nothing counts is a mean of nothing."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Soft, offered

BREAKS = "losses-finite"


class Broken(Soft):
    def loss(self, score_BT, counted_BT):
        count = counted_BT.sum()  # right: count = counted_BT.sum().clamp_min(1)
        return (score_BT * counted_BT).sum().square() / count


@hookimpl
def register_routers():
    return offered(Broken, gradient=True)
