"""The running mean is no buffer, so that no checkpoint holds it."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "same-elsewhere"


class Broken(Threshold):
    def __init__(self, config, build):
        super().__init__(config, build)
        del self.mean
        self.mean = torch.zeros(())  # right: self.register_buffer("mean", torch.zeros(()))

    def score(self, h_BTD, context):
        return 1 + super().score(h_BTD, context)


@hookimpl
def register_routers():
    return offered(Broken)
