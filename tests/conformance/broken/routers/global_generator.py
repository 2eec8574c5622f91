"""Chance comes from torch's generator, so that no worker repeats another's decisions."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Coin, offered

BREAKS = "counter-hash"


class Broken(Coin):
    def draw(self, context):
        draw = torch.rand(context.positions_BT.shape)  # right: draw = super().draw(context)
        return draw


@hookimpl
def register_routers():
    return offered(Broken)
