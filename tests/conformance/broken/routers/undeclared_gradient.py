"""It states no gradient, but gives soft weights, so that training runs both choices and is charged for one."""

from crossbreed import Decision, hookimpl
from tests.conformance.small_parts.routers import Soft, offered

BREAKS = "no-gradient"


class Broken(Soft):
    def forward(self, h_BTD, context, state):
        decision, state = super().forward(h_BTD, context, state)
        weight_BTN = decision.weight_BTN  # right: weight_BTN = None
        return Decision(decision.choice_BT, weight_BTN, decision.losses), state


@hookimpl
def register_routers():
    return offered(Broken)
