"""Scores are normalised over time instead of over choices."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "causal"


class Broken(Threshold):
    def above(self, score_BT, context):
        two_BTN = torch.stack((-score_BT, score_BT), -1)
        over = 1  # right: over = 2
        share_BT = two_BTN.softmax(over)[..., 1]
        return (share_BT > 1 / two_BTN.shape[over]).long()


@hookimpl
def register_routers():
    return offered(Broken)
