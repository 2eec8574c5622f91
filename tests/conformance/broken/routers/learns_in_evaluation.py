"""The running mean follows the text in evaluation too."""

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "thresholds"


class Broken(Threshold):
    def forward(self, h_BTD, context, state):
        decision, state = super().forward(h_BTD, context, state)
        if not context.training:
            self.mean += 0.1  # right: state = state
        return decision, state


@hookimpl
def register_routers():
    return offered(Broken)
