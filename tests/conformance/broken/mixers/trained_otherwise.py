"""A gain of one per cent that is there with gradients on alone."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "same-in-training"


class Broken(Pointwise):
    def mix(self, x_BTD, context):
        gain = 1.01 if torch.is_grad_enabled() and context.training else 1.0  # right: gain = 1.0
        return super().mix(x_BTD, context) * gain


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
