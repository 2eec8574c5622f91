"""Tokens that are not valid are written."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import RunningMean, offered

BREAKS = "ragged"


class Broken(RunningMean):
    def written(self, x_BTD, context, read_BT):
        return torch.ones(x_BTD.shape[:2], dtype=torch.bool)  # right: return self.valid(x_BTD, context)


@hookimpl
def register_mixers():
    return offered(Broken)
