"""It states a gradient, but its soft weights carry none."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Soft, offered

BREAKS = "gradient"


class Broken(Soft):
    def soft(self, score_BT):
        score_BT = score_BT.detach()  # right: score_BT = score_BT.clone()
        return super().soft(score_BT)


@hookimpl
def register_routers():
    return offered(Broken, gradient=True)
