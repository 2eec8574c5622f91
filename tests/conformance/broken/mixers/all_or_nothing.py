"""Where a third of the tokens read, all are computed."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "skips"


class Broken(Pointwise):
    def forward(self, x_BTD, context, state, read_BT=None):
        if read_BT is None or context.training:
            return super().forward(x_BTD, context, state, read_BT)
        gathered = read_BT.double().mean() < 0.3  # right: gathered = True
        if not gathered:
            return super().forward(x_BTD, context, state, read_BT)
        y_BTD = torch.zeros_like(x_BTD)
        y_BTD[read_BT] = self.mix(x_BTD[read_BT], context)
        return self.read(y_BTD, context, read_BT), state


@hookimpl
def register_mixers():
    execution = {"train": "dense", "prefill": "sparse", "decode": "dense"}
    return offered(Broken, "channel", execution=execution)
