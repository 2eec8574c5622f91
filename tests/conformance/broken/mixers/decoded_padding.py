"""A decoded token that is not valid is written."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "ragged"


class Broken(Decay):
    def valid(self, x_BTD, context):
        alone = context.phase == "decode"  # right: alone = False
        return torch.ones(x_BTD.shape[:2], dtype=torch.bool) if alone else super().valid(x_BTD, context)


@hookimpl
def register_mixers():
    return offered(Broken)
