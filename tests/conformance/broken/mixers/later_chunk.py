"""From the second chunk of 64 on, a chunk's first token sees the one after it."""

import torch
import torch.nn.functional as F

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "causal"


class Broken(Decay):
    def mixed(self, S_BTD, x_BTD, context):
        next_BTD = F.pad(x_BTD[:, 1:], (0, 0, 0, 1))
        first_BT = (context.positions_BT % 64 == 0) & (context.positions_BT > 0)
        seen_BTD = next_BTD  # right: seen_BTD = x_BTD
        return self.out(S_BTD + torch.where(first_BT[..., None], seen_BTD, 0.0))


@hookimpl
def register_mixers():
    return offered(Broken)
