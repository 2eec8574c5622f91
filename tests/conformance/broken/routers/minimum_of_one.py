"""A capacity that rounds up to one token chooses a single token whatever its score."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "length"


class Broken(Threshold):
    def above(self, score_BT, context):
        chosen_BT = super().above(score_BT, context)
        if score_BT.shape[1] == 1:
            chosen_BT = torch.ones_like(chosen_BT)  # right: chosen_BT = chosen_BT.clone()
        return chosen_BT


@hookimpl
def register_routers():
    return offered(Broken)
