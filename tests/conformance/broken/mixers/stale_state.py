"""A used state is never forgotten, whatever the position."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "fresh-state"


class Broken(Decay):
    def forgets(self, x_BTD, context):
        return torch.zeros(x_BTD.shape[:2], dtype=torch.bool)  # right: return self.resets(x_BTD, context)


@hookimpl
def register_mixers():
    return offered(Broken)
