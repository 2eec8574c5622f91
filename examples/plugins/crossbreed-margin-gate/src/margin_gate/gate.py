"""The margin gate. Legend: B batch, T tokens, D model width, V vocabulary, n tokens whose logits are held at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from crossbreed import Context, Cost, Decision, Router, RouterBuild, Shape, Work
from margin_gate import MarginGateConfig


def margin(logits_nV: Tensor) -> Tensor:
    """p1 - p2 of softmax(logits), in [0, 1]."""
    top_n2 = logits_nV.softmax(-1).topk(2, dim=-1).values
    return top_n2[:, 0] - top_n2[:, 1]


class MarginGate(Router, torch.nn.Module):
    """Chooses 1 (run, go deeper) where the model's own next-token margin is small.

    In training the running values take this call's statistics in before they judge it, and are committed once a step in
    ``after_step``; in evaluation nothing changes, so no choice depends on a later token.
    """

    mu: Tensor
    sigma: Tensor

    def __init__(self, config: MarginGateConfig, build: RouterBuild) -> None:
        super().__init__()
        self.config = config
        # Buffers travel in checkpoints.
        self.register_buffer("mu", torch.tensor(config.mu_init))
        self.register_buffer("sigma", torch.tensor(config.sigma_init))

    def segment_length(self) -> int | None:
        return self.config.segment

    def forward(
        self, h_BTD: Tensor, context: Context, state: dict[str, Tensor] | None
    ) -> tuple[Decision, dict[str, Tensor] | None]:
        margin_BT = context.measure_output(h_BTD, margin)
        if self.config.threshold == "fixed":
            return Decision((margin_BT < self.config.tau).long()), state
        if not context.training:
            return Decision(self._torn(margin_BT, self.mu, self.sigma)), state
        statistics = summary(context.whole(margin_BT), context.whole(context.counted_BT()))
        choice_BT = self._torn(margin_BT, *self._updated(statistics))
        return Decision(choice_BT, statistics=statistics), state

    def _torn(self, margin_BT: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
        return (margin_BT < mu - self.config.kappa * sigma).long()

    def _updated(self, statistics: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The running values with statistics averaged in; as they were where nothing was counted."""
        keep = torch.where(statistics["count"] > 0, self.config.momentum, 1.0).to(self.mu)
        fresh = [torch.nan_to_num(statistics[name].to(self.mu)) for name in ("median", "std")]
        return keep * self.mu + (1 - keep) * fresh[0], keep * self.sigma + (1 - keep) * fresh[1]

    @torch.no_grad()
    def after_step(self, statistics: list[Mapping[str, Any]]) -> None:
        """Commit the mean over the calls of a step (depths, micro-batches) that counted anything."""
        seen = [call for call in statistics if call and int(call["count"]) > 0]
        if not seen:
            return
        mean = {name: torch.stack([call[name] for call in seen]).mean() for name in ("median", "std")}
        mu, sigma = self._updated({**mean, "count": torch.tensor(1)})
        self.mu.copy_(mu)
        self.sigma.copy_(sigma)

    @staticmethod
    def rates(config: MarginGateConfig, kind: str, choices: int) -> tuple[float, ...]:
        return config.shares(choices)

    @staticmethod
    def cost(config: MarginGateConfig, build: RouterBuild, shape: Shape) -> Cost:
        """One product with the output head for every token that is asked, forward only: the probe has no gradient."""
        flops = 2.0 * build.d_model * build.vocab
        return Cost(write=Work(flops, flops, flops, flops, weights=flops / 2))


def summary(x_BT: Tensor, counted_BT: Tensor) -> dict[str, Tensor]:
    """Median, standard deviation and count of the counted tokens; the median of nothing is NaN."""
    count = counted_BT.sum()
    median = x_BT.masked_fill(~counted_BT, torch.nan).flatten().nanmedian()
    mean = x_BT.where(counted_BT, 0.0).sum() / count.clamp_min(1)
    square = (x_BT - mean).square().where(counted_BT, 0.0).sum()
    return {"median": median, "std": (square / (count - 1).clamp_min(1)).sqrt(), "count": count}
