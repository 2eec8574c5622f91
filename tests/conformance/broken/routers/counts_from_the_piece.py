"""Segments are counted from the start of the piece, not of the document."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Coin, offered

BREAKS = "splits"


class Broken(Coin):
    def draw(self, context):
        at_BT = torch.arange(context.positions_BT.shape[1]).expand_as(context.positions_BT)
        number_BT = at_BT // 4  # right: number_BT = context.positions_BT // 4
        return context.uniform(context.site, number_BT)


@hookimpl
def register_routers():
    return offered(Broken)
