"""The direction of nothing is no number."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "degenerate-inputs"


class Broken(Threshold):
    def forward(self, h_BTD, context, state):
        decision, state = super().forward(h_BTD, context, state)
        size_BT = h_BTD.norm(dim=-1)  # right: size_BT = h_BTD.norm(dim=-1).clamp_min(1e-30)
        along_BT = (1 + h_BTD[..., 0] / size_BT).floor().clamp(max=1).long()
        decision.choice_BT.mul_(along_BT)
        return decision, state


@hookimpl
def register_routers():
    return offered(Broken)
