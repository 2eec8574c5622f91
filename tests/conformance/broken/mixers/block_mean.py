"""Each token is gated by the mean of its block of 16, later tokens included."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import RunningMean, offered

BREAKS = "causal"


class Broken(RunningMean):
    def parts(self, x_BTD, write_BT):
        blocks = [block.mean(1, keepdim=True).expand_as(block) for block in x_BTD.split(16, 1)]
        gate_BTD = torch.cat(blocks, 1)  # right: gate_BTD = x_BTD
        return super().parts(x_BTD * torch.sigmoid(gate_BTD), write_BT)


@hookimpl
def register_mixers():
    return offered(Broken)
