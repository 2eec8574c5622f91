"""A path that is taken with gradients on alone centres the sequence."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "causal"


class Broken(Decay):
    def mixed(self, S_BTD, x_BTD, context):
        if torch.is_grad_enabled():
            S_BTD = S_BTD - S_BTD.mean(1, keepdim=True)  # right: S_BTD = S_BTD - 0.0
        return self.out(S_BTD)


@hookimpl
def register_mixers():
    return offered(Broken)
