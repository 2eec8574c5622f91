"""From token 64 on, the first token of each block of 64 is decided by the one after it."""

import torch
from torch import nn

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "causal"


class Broken(Threshold):
    def above(self, score_BT, context):
        later_BT = nn.functional.pad(score_BT[:, 1:], (0, 1))  # right: later_BT = score_BT
        first_BT = (context.positions_BT % 64 == 0) & (context.positions_BT > 0)
        return super().above(torch.where(first_BT, later_BT, score_BT), context)


@hookimpl
def register_routers():
    return offered(Broken)
