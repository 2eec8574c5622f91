"""The window is stored after the convolution instead of before it."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Convolution, offered

BREAKS = "splits"


class Broken(Convolution):
    def window(self, before, tail, y_BTD):
        return torch.cat((before, y_BTD), 1)[:, -before.shape[1] :]  # right: return tail


@hookimpl
def register_mixers():
    return offered(Broken)
