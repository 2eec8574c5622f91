"""A learned router: a linear score, a hard choice, a straight-through gradient, and a loss that holds the rate."""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.router import Decision, RouterBuild, RouterState
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.plugins.routers.base import BuiltinRouter
from crossbreed.plugins.routers.configs import LearnedConfig

INIT_STD = 0.02


class Learned(BuiltinRouter[LearnedConfig]):
    """choice = argmax(0, w_n . rms(h) + b_n - shift), n = 1..N-1, in fp32; deterministic (amor.md section 10, point 20).

    The input is RMS-normalised without weights, so that scores start at one scale at every site (the mode site shows raw
    embeddings). In training ``weight_BTN`` is the hard choice forward and softmax(scores / temperature) backward.

    The loss compares the share of hard choices with its target and sends its gradient through the soft weights: a mean
    probability can sit on its target while every hard choice falls on one side, and the ledger charges hard choices.
    """

    target_N: Tensor

    def __init__(self, config: LearnedConfig, build: RouterBuild) -> None:
        super().__init__(config, build, None if config.segment == 1 else config.segment)
        scores = build.choices - 1
        self.weight = torch.nn.Parameter(torch.empty(scores, build.d_model))
        self.bias = torch.nn.Parameter(torch.empty(scores))
        torch.nn.init.normal_(self.weight, std=INIT_STD)
        # A unit-RMS input gives scores N(bias, INIT_STD^2 D): this bias starts the hard rate at its target (exact for N = 2).
        share = min(max(config.target_rate / scores, 0.01), 0.99)
        self.register_buffer("target_N", torch.tensor(self.nominal, dtype=torch.float64), persistent=False)
        torch.nn.init.constant_(self.bias, INIT_STD * math.sqrt(build.d_model) * NormalDist().inv_cdf(share))

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        scores_BTN = self.scores(h_BTD)
        choice_BT = scores_BTN.argmax(-1)
        if not context.training:
            return Decision(choice_BT), state
        soft_BTN = (scores_BTN / self.config.temperature).softmax(-1)
        hard_BTN = F.one_hot(choice_BT, self.build.choices).to(soft_BTN.dtype)
        weight_BTN = hard_BTN + (soft_BTN - soft_BTN.detach())
        loss = self.rate_loss(weight_BTN, context)
        return Decision(choice_BT, weight_BTN.to(h_BTD.dtype), {"rate": loss}), state

    def scores(self, h_BTD: Tensor) -> Tensor:
        """Scores of all N choices in at least fp32, also under autocast; choice 0 scores 0 and wins ties."""
        with torch.autocast(h_BTD.device.type, enabled=False):
            h_BTD = F.rms_norm(h_BTD.to(torch.promote_types(h_BTD.dtype, torch.float32)), h_BTD.shape[-1:])
            scores = F.linear(h_BTD, self.weight.to(h_BTD.dtype), self.bias.to(h_BTD.dtype))
        return F.pad(scores - self.config.shift, (1, 0))

    def rate_loss(self, weight_BTN: Tensor, context: Context) -> Tensor:
        """loss_weight * sum over n >= 1 of (share of choice n - its target)^2, over the counted tokens; 0 where none is.

        With segments a token counts with the choice its segment took at its first token.
        """
        counted_BT = context.counted_BT()
        if self.segment is not None:
            steps_T = torch.arange(weight_BTN.shape[1], device=weight_BTN.device)
            start_BT = steps_T - context.positions_BT % self.segment
            counted_BT = counted_BT & (start_BT >= 0)
            index_BTN = start_BT.clamp_min(0)[..., None].expand_as(weight_BTN)
            weight_BTN = weight_BTN.gather(1, index_BTN)
        counted = context.whole(counted_BT.sum()[None]).sum()
        chosen_1N = (weight_BTN * counted_BT[..., None]).sum((0, 1))[None]
        share_N = context.whole(chosen_1N).sum(0) / counted.clamp_min(1)
        distance = (share_N - self.target_N.to(share_N.dtype))[1:].square().sum()
        return self.config.loss_weight * distance * (counted > 0)

    @staticmethod
    def cost(config: LearnedConfig, build: RouterBuild, shape: Shape) -> Cost:
        scores = build.choices - 1
        flops, parameters = 2.0 * build.d_model * scores, scores * (build.d_model + 1)
        # Kept: the input and its normalised form, scores and soft weights.
        kept = (2 * build.d_model + 8 * build.choices) * shape.wide_bytes
        work = Work.product(flops, weights=parameters, kept_bytes=kept)
        return Cost(write=work, parameters=parameters, active_parameters=parameters)
