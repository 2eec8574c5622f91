"""It reports a rate of its own beside the one that the site counts."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Coin, offered

BREAKS = "realised-rate"


class Broken(Coin):
    def forward(self, h_BTD, context, state):
        context.record(counts=torch.tensor([3, 1]))  # right: context.record(drawn=torch.tensor([3, 1]))
        return super().forward(h_BTD, context, state)


@hookimpl
def register_routers():
    return offered(Broken)
