"""AMOR's entropy gate at all three sites: spend compute where the model itself is unsure."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.router import Decision, RouterBuild, RouterState
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.plugins.routers.configs import EntropyGateConfig, ThresholdConfig
from crossbreed.plugins.routers.threshold import ThresholdRouter

MODE_SEGMENT = 16
"""Tokens in a segment at the mode site when the config names none."""

LOOK_EVERY = 64
"""Steps between looks at tau from the host, each of which waits for the device."""

UNSEEN = -1.0
"""Mean entropy of a row whose document has no finished segment yet."""


class EntropyGate(ThresholdRouter[EntropyGateConfig]):
    """choice = 1[H > tau], hard, without gradient; tau = mu + kappa * sigma (amor.md section 3).

    At gate and halt H is read from the site's own input: run the block, or go one depth further, while the model is
    unsure. In training mu' and sigma' average in this call's lower median and unbiased standard deviation before the
    comparison; ``after_step`` commits once. Outside training both are frozen.

    At mode it is a feedback router: a segment takes choice 1 if the model's output over the segment before it had mean
    entropy above tau. It trains under segment-random modes while ``observe`` fits mu and sigma to segment means.
    """

    steps: Tensor

    def __init__(self, config: EntropyGateConfig, build: RouterBuild) -> None:
        segment = (config.segment or MODE_SEGMENT) if build.kind == "mode" else config.segment
        super().__init__(config, build, None if segment == 1 and build.kind != "mode" else segment)
        self.register_buffer("steps", torch.tensor(0))
        self.train_shares = config.training_shares()
        self._commits, self._warned = 0, False

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        if self.build.kind == "mode":
            return self._mode(context, state), state
        h_BT = self.signal(h_BTD, context)
        if not context.training:
            return self.decided(h_BT[..., None]), state
        statistics = self.seen(h_BT, context.counted_BT(), context)
        return Decision(self.above(h_BT, *self.updated(statistics)), statistics=statistics), state

    def signal(self, h_BTD: Tensor, context: Context) -> Tensor:
        return context.entropy(h_BTD).detach()

    def seen(self, h: Tensor, counted: Tensor, context: Context) -> dict[str, Tensor]:
        """The summary of this call, over all rows of the step or over those of this device."""
        if self.config.ranks == "whole":
            h, counted = context.whole(h), context.whole(counted)
        return summary(h, counted)

    def student(self) -> tuple[str, dict[str, Any]] | None:
        """The distilled router with this gate's threshold; none at mode, where H is read from another place."""
        if self.build.kind == "mode":
            return None
        return "distilled", self.config.model_dump(mode="json", include=set(ThresholdConfig.model_fields))

    def updated(self, statistics: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(mu', sigma'): the running values with ``statistics`` averaged in; unchanged where nothing was counted."""
        keep = torch.full_like(self.mu, self.config.momentum)
        if self.config.warm_start:
            keep = torch.where(self.steps == 0, 0.0, keep)
        keep = torch.where(statistics["count"] > 0, keep, 1.0)
        new = [torch.nan_to_num(statistics[name].to(self.mu.dtype)) for name in ("median", "std")]
        return keep * self.mu + (1 - keep) * new[0], keep * self.sigma + (1 - keep) * new[1]

    @torch.no_grad()
    def after_step(self, statistics: list[Mapping[str, Any]]) -> None:
        """Commit the mean of the calls' medians and standard deviations; calls that counted nothing do not weigh in."""
        if self.config.ranks == "local":
            statistics = [call for call in statistics if call.get("part", 0) == 0]
        if not statistics:
            return
        seen = torch.stack([call["count"] for call in statistics]) > 0
        mean = {
            name: torch.stack([call[name] for call in statistics]).where(seen, 0.0).sum()
            / seen.sum().clamp_min(1)
            for name in ("median", "std")
        }
        mu, sigma = self.updated({**mean, "count": seen.sum()})
        self.mu.copy_(mu)
        self.sigma.copy_(sigma)
        self.steps.add_(seen.any())
        if self._commits % LOOK_EVERY == 0 and not self._warned:
            self._warn_when_shut()
        self._commits += 1

    def _warn_when_shut(self) -> None:
        tau = float(self.tau())
        if tau >= 1.0:
            self._warned = True
            warnings.warn(
                f"router 'entropy_gate' at {self.build.site!r}: tau is {tau:.3g}, but normalised entropy never exceeds 1, so "
                f"nothing fires; lower kappa ({self.config.kappa:g}) or set tau_ceiling below 1.",
                RuntimeWarning,
                stacklevel=2,
            )

    # The mode site

    def init_state(self, batch: int, device: torch.device | str | None = None) -> RouterState:
        """Per row: entropy and tokens of the segment being written, and the mean of the last finished one."""
        if self.build.kind != "mode":
            return {}
        return {
            "sum_B": torch.zeros(batch, dtype=torch.float64, device=device),
            "count_B": torch.zeros(batch, dtype=torch.int64, device=device),
            "last_B": torch.full((batch,), UNSEEN, dtype=torch.float64, device=device),
        }

    def _mode(self, context: Context, state: RouterState | None) -> Decision:
        """The choice of a piece that lies inside one segment of each row, as routing cuts it."""
        assert self.segment is not None
        if context.training:
            return Decision(self.draw(context, self.segment, self.train_shares))
        positions_BT = context.positions_BT
        if state is None:
            return Decision(torch.full_like(positions_BT, self.config.first_choice))
        last_B1 = state["last_B"][:, None]
        known_BT = (positions_BT >= self.segment) & (last_B1 != UNSEEN)
        choice_BT = self.above(last_B1).expand_as(positions_BT)
        return Decision(torch.where(known_BT, choice_BT, self.config.first_choice))

    @torch.no_grad()
    def observe(self, output_BTD: Tensor, context: Context, state: RouterState | None) -> RouterState | None:
        """Take in the model's output on a piece of any length; any split of a row ends in the same state.

        A segment's mean covers its valid tokens, because no loss mask exists when a choice is due. In training the means of
        finished segments that hold a counted token are the statistics that ``after_step`` receives.
        """
        if self.build.kind != "mode" or self.segment is None:
            return state
        valid_BT = context.valid_BT if context.valid_BT is not None else torch.ones_like(context.reset_BT)
        before = state or self.init_state(output_BTD.shape[0], output_BTD.device)
        h_BT = context.entropy(output_BTD).to(torch.float64).where(valid_BT, 0.0)
        # Runs of tokens of one segment; run 0 carries on with the segment that the state was left in.
        starts_BT = (context.positions_BT % self.segment == 0) & valid_BT
        run_BT = starts_BT.cumsum(1)
        sum_BR = _per_run(run_BT, h_BT)
        count_BR = _per_run(run_BT, valid_BT.to(torch.int64))
        sum_BR[:, 0] += before["sum_B"]
        count_BR[:, 0] += before["count_B"]
        finished_BR = count_BR == self.segment
        mean_BR = sum_BR / count_BR.clamp_min(1)
        if context.training:
            judged_BR = _per_run(run_BT, context.counted_BT().to(torch.int64)) > 0
            context.record(**self.seen(mean_BR, finished_BR & judged_BR, context))
        if state is None:
            return None
        runs_R = torch.arange(finished_BR.shape[1], device=run_BT.device)
        last_run_B1 = run_BT[:, -1:]
        document_B = torch.where(context.reset_BT & valid_BT, run_BT, 0).amax(1)
        latest_B = torch.where(finished_BR, runs_R, UNSEEN).amax(1).to(torch.int64)
        latest_mean_B = mean_BR.gather(1, latest_B.clamp_min(0)[:, None])[:, 0]
        kept_B = torch.where(document_B > 0, UNSEEN, before["last_B"])
        open_B = ~finished_BR.gather(1, last_run_B1)[:, 0]
        return {
            "sum_B": sum_BR.gather(1, last_run_B1)[:, 0].where(open_B, 0.0),
            "count_B": count_BR.gather(1, last_run_B1)[:, 0].where(open_B, 0),
            "last_B": torch.where(latest_B >= document_B, latest_mean_B, kept_B),
        }

    @staticmethod
    def training_rates(config: EntropyGateConfig, kind: SiteKind, choices: int) -> tuple[float, ...] | None:
        """At mode, where training draws."""
        return config.training_shares() if kind == "mode" else None

    @staticmethod
    def cost(config: EntropyGateConfig, build: RouterBuild, shape: Shape) -> Cost:
        """One product with the output head per token, forward only: the probe carries no gradient.

        At mode it is charged as well, although decode could share the head's logits: the model does not keep them.
        """
        flops = 2.0 * build.d_model * build.vocab
        return Cost(write=Work(flops, flops, flops, flops, weights=flops / 2))


def summary(h: Tensor, counted: Tensor) -> dict[str, Tensor]:
    """Lower median, unbiased standard deviation (0 below two values) and count of ``h`` where ``counted``, without a sync.

    The median of nothing is NaN; its count of 0 keeps it from being used.
    """
    count = counted.sum()
    median = h.masked_fill(~counted, torch.nan).flatten().nanmedian()
    mean = h.where(counted, 0.0).sum() / count.clamp_min(1)
    square = (h - mean).square().where(counted, 0.0).sum()
    return {"median": median, "std": (square / (count - 1).clamp_min(1)).sqrt(), "count": count}


def _per_run(run_BT: Tensor, x_BT: Tensor) -> Tensor:
    """Sums of x over the runs 0..T of each row."""
    batch, tokens = run_BT.shape
    return x_BT.new_zeros(batch, tokens + 1).scatter_add(1, run_BT, x_BT)
