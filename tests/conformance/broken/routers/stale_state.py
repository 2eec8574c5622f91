"""The running average goes on from one document into the next."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Smooth, offered

BREAKS = "documents"


class Broken(Smooth):
    def kept(self, context):
        return torch.ones_like(context.reset_BT)  # right: return ~context.reset_BT


@hookimpl
def register_routers():
    return offered(Broken)
