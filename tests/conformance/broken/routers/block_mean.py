"""A score is compared with the mean of its block of 8 tokens, later ones included."""

import torch

from crossbreed import hookimpl
from tests.conformance.small_parts.routers import Threshold, offered

BREAKS = "causal"


class Broken(Threshold):
    def score(self, h_BTD, context):
        score_BT = super().score(h_BTD, context)
        block_T = torch.arange(score_BT.shape[1]) // 8
        same_TS = (block_T[:, None] == block_T).to(score_BT.dtype)
        seen_TS = same_TS  # right: seen_TS = torch.eye(len(block_T), dtype=score_BT.dtype)
        mean_BT = (score_BT[:, None, :] * seen_TS).sum(-1) / seen_TS.sum(-1)
        return score_BT - 0.5 * mean_BT


@hookimpl
def register_routers():
    return offered(Broken)
