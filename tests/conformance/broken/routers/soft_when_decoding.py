"""Soft weights are handed out with decoded tokens too."""

from torch import nn

from crossbreed import Decision, hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "choices"


class Broken(Threshold):
    def forward(self, h_BTD, context, state):
        decision, state = super().forward(h_BTD, context, state)
        if context.phase == "decode":  # right: if context.phase == "never":
            weight_BTN = nn.functional.one_hot(decision.choice_BT, 2).to(h_BTD.dtype)
            decision = Decision(decision.choice_BT, weight_BTN)
        return decision, state


@hookimpl
def register_routers():
    return offered(Broken)
