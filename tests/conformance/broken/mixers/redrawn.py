"""Decays are set again whenever the module is cast or moved."""

import torch

from crossbreed import hookimpl
from tests.conformance.small import Decay, offered

BREAKS = "initial-values"


class Broken(Decay):
    def _apply(self, fn, recurse=True):
        moved = super()._apply(fn, recurse)
        with torch.no_grad():
            moved.rate_D.fill_(1.0)  # right: pass
        return moved


@hookimpl
def register_mixers():
    return offered(Broken)
