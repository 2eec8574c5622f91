"""The fast path of training forgets the causal mask."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Attention, offered

BREAKS = "causal"


class Broken(Attention):
    def causal(self, x_BTD, context):
        mask_TT = super().causal(x_BTD, context)
        if context.training:
            mask_TT = torch.ones_like(mask_TT)  # right: pass
        return mask_TT


@hookimpl
def register_mixers():
    return offered(Broken, packing=False)
