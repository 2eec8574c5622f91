"""A table that is computed when built and not saved, so loading weights does not bring it."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "meta-device"


SAVED = False  # right: SAVED = True


class Broken(Pointwise):
    def __init__(self, config, build):
        super().__init__(config, build)
        self.register_buffer("scale_D", torch.linspace(0.5, 1.0, build.d_model), persistent=SAVED)

    def mix(self, x_BTD, context):
        return super().mix(x_BTD * self.scale_D, context)


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
