"""A gain that the cost counts and no gradient reaches."""

import torch
from torch import nn

from crossbreed import hookimpl
from tests.conformance.small import Pointwise, offered

BREAKS = "gradients"


class Broken(Pointwise):
    def __init__(self, config, build):
        super().__init__(config, build)
        self.gain_D = nn.Parameter(torch.ones(build.d_model))

    def mix(self, x_BTD, context):
        gain_D = self.gain_D.detach()  # right: gain_D = self.gain_D
        return super().mix(x_BTD * gain_D, context)

    @classmethod
    def cost(cls, config, d_model, shape, depths=1, parts=None):
        plain = super().cost(config, d_model, shape, depths, parts)
        count = plain.parameters + d_model
        return plain._replace(parameters=count, active_parameters=count)


@hookimpl
def register_mixers():
    return offered(Broken, "channel")
