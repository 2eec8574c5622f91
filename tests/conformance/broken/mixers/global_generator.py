"""Noise from the global generator."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "repeatable"


class Broken(Pointwise):
    def mix(self, x_BTD, context):
        noise = torch.rand_like(x_BTD)  # right: noise = 0.5
        return super().mix(x_BTD * (1 + 0.1 * noise), context)


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
