"""Settings of the built-in routers. Torch-free, so that listing plugins stays light."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.schedule import Schedule
from crossbreed.core.contracts.settings import later
from crossbreed.core.errors import ConfigError

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Choice = Annotated[int, Field(ge=0)]
LONGEST_RUN = 64
"""Segments over which exact shares may be spread."""

Choices = Literal["same"] | Choice | tuple[tuple[Choice, Choice], ...]


class RouterConfig(BaseModel):
    """What all built-in routers share.

    evaluate: what happens outside training. ``"same"``: the router decides as its rule says. A number: that choice for every
        token (Oryx in one mode). A list of (position, choice): a schedule, each choice from its position in the document
        on, unaligned with segments where it likes (Oryx's switches). Switches counted from a text's end need its length:
        they are operating points.
    train: the same for training, where the router goes on learning what it would decide: its statistics and losses see
        every token. ``"same"``, as published; ``1`` is a gate that is always open in training and decides only when the
        model is used (amor.md section 9, C9).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    evaluate: Choices = "same"
    train: Choices = later("same")

    @field_validator("evaluate", "train")
    @classmethod
    def _one_form(cls, value: Any) -> Any:
        """Switches that change nothing are left out, and a schedule that never switches is its choice."""
        if not isinstance(value, tuple):
            return value
        switches = Schedule(value).switches
        kept = tuple(s for i, s in enumerate(switches) if i == 0 or s[1] != switches[i - 1][1])
        return kept[0][1] if len(kept) == 1 else kept

    def schedule(self) -> Schedule | None:
        """What is followed outside training, or None where the router decides."""
        return _schedule(self.evaluate)

    def training_schedule(self) -> Schedule | None:
        """What is followed in training, or None where the router decides."""
        return _schedule(self.train)

    def shares(self, kind: SiteKind, choices: int) -> tuple[float, ...]:
        """Nominal share of tokens per choice of the router's own decisions, before anything was trained."""
        raise NotImplementedError


def _schedule(choices: Choices) -> Schedule | None:
    if choices == "same":
        return None
    return Schedule.always(choices) if isinstance(choices, int) else Schedule(choices)


class ThresholdConfig(RouterConfig):
    """A threshold on normalised entropy H: choose 1 where H > tau (amor.md section 3).

    threshold:    ``adaptive``: tau = mu + kappa * sigma, the published default, whose rate does not move with scale or
                  training stage. ``fixed``: tau = mu + offset, the published alternative.
    kappa:        0.2, the only published value; on Gaussian entropies 42 % of tokens exceed tau.
    offset:       0.03, the published one.
    tau_ceiling:  tau never exceeds it. None, as published: at tau >= 1 nothing fires, which is warned of once.
    mu_init, sigma_init: the published starting values of the running median and standard deviation.
    segment:      tokens that share the choice of their segment's first token, or None for a choice per token.
    shift:        added to tau, under the ceiling; what operating points ``threshold:SHIFT`` move in a trained model.
    """

    threshold: Literal["adaptive", "fixed"] = "adaptive"
    kappa: float = Field(default=0.2, allow_inf_nan=False)
    offset: float = Field(default=0.03, allow_inf_nan=False)
    tau_ceiling: Annotated[float, Field(ge=0, lt=1)] | None = None
    mu_init: Share = 0.3
    sigma_init: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    segment: Annotated[int, Field(ge=1)] | None = None
    shift: float = later(0.0, allow_inf_nan=False)

    def running_share(self) -> float:
        """P(H > tau) on Gaussian entropies: 1 - Phi(kappa), or 1 - Phi(offset / sigma_init) for a fixed threshold; a shift
        counts as an offset."""
        sigma = max(self.sigma_init, 1e-6)
        if self.threshold == "adaptive":
            return 1.0 - NormalDist().cdf(self.kappa + self.shift / sigma)
        return 1.0 - NormalDist(sigma=sigma).cdf(self.offset + self.shift)

    def shares(self, kind: SiteKind, choices: int) -> tuple[float, ...]:
        if choices != 2:
            raise ConfigError(f"a threshold on entropy tells 2 choices apart, got {choices}.")
        return (1.0 - self.running_share(), self.running_share())


class EntropyGateConfig(ThresholdConfig):
    """AMOR's gate: a threshold on the entropy of the model's own next-token distribution (amor.md section 3).

    momentum:     of the running mu and sigma. 0.95, not the published 0.99: runs here last hundreds of steps, and 0.99
                  follows falling entropy 100 steps late, so that nothing would fire (amor.md section 10, point 4).
                  1 keeps ``mu_init`` and ``sigma_init``: a threshold that no data moves, without ``warm_start``.
    warm_start:   the first step replaces mu and sigma instead of averaging with the starting values. A stated deviation:
                  the published gate starts at 0.3 against entropies near 1 and fires everywhere for about 200 steps.
                  With ``momentum: 0.99, warm_start: false`` the gate is the published one.
    segment:      tokens that share the choice of their segment's first token. None: a choice per token at gate and halt,
                  16 tokens at mode, where segments are always used.
    first_choice: at mode, the choice of a document's first segment, when no output has been seen. 1, the expensive
                  reader: guessing wrong costs some time there, while guessing 0 would cost accuracy.
    train_rate:   at mode, the share of segments that read with choice 1 in training; None: the nominal evaluation share.
    ranks:        whose statistics count where several devices share a batch (amor.md section 10, point 5). ``local``: each device
                  thresholds by its own rows, and all commit what the first one saw; nothing is reduced, as in the released code.
                  ``mean``: all commit the mean over the devices that counted something. ``whole``: a call's statistics are those
                  of the rows of all devices, and the run is the same on any number of them.
    """

    momentum: Share = 0.95
    warm_start: bool = True
    first_choice: int = Field(default=1, ge=0, le=1)
    train_rate: Share | None = None
    ranks: Literal["local", "mean", "whole"] = later("local")

    def training_shares(self) -> tuple[float, float]:
        """Odds of the choices at mode in training."""
        rate = self.running_share() if self.train_rate is None else self.train_rate
        return (1.0 - rate, rate)


class DistilledConfig(ThresholdConfig):
    """A small network that predicts an entropy gate's H from the same input (amor.md section 3, section 10 point 21).

    hidden: width of its hidden layer; 512 as published.
    """

    hidden: int = Field(default=512, ge=1)


class SegmentRandomConfig(RouterConfig):
    """One independent draw for each segment of each document (oryx.md section 4).

    segment:     tokens in a segment; 128 as published, shorter for short tasks. ``"sequence"``: one draw for a whole
                 document, the paper's sequence-level mixing (its architecture ablations, table 5b).
    probability: of choice 1 where there are two choices (0.25: Oryx's attention to linear 1 to 3), or a list with the
                 probability of every choice.
    draws:       ``per_sequence``: every row has its own map. ``per_batch``: all rows of a step share one, as kernels that
                 take one mode at a time need. The paper does not say; rows apart see more maps for the same tokens.
    balance:     ``independent`` odds for each segment, which the paper's own (3/4)^16 implies. ``exact``: of each run of
                 segments that can hold the shares exactly, as 4 can hold 3 to 1, every choice gets exactly its own, in drawn
                 order; a document's last run may be cut short. Shares need a common denominator of at most 64.
    """

    segment: Annotated[int, Field(ge=1)] | Literal["sequence"] = 128
    probability: float | tuple[float, ...] = 0.25
    draws: Literal["per_sequence", "per_batch"] = "per_sequence"
    balance: Literal["independent", "exact"] = later("independent")

    @field_validator("probability")
    @classmethod
    def _is_a_distribution(cls, value: float | tuple[float, ...]) -> float | tuple[float, ...]:
        listed = value if isinstance(value, tuple) else (value,)
        if not all(0 <= p <= 1 for p in listed):
            raise ValueError("every probability must lie in [0, 1]")
        if isinstance(value, tuple) and not math.isclose(math.fsum(value), 1.0, abs_tol=1e-6):
            raise ValueError(f"probabilities of all choices must sum to 1, they sum to {math.fsum(value):g}")
        return value

    @model_validator(mode="after")
    def _exact_shares_have_segments_to_hold_them(self) -> SegmentRandomConfig:
        if self.balance == "exact" and self.segment == "sequence":
            raise ValueError(
                "segment 'sequence' draws once for a whole sequence, so balance cannot be 'exact'; give segment a number of tokens"
            )
        if self.balance == "exact":
            self.counts()
        return self

    def counts(self) -> tuple[int, ...]:
        """Segments of each choice in the shortest run that holds the shares exactly. Raises ValueError where none does."""
        shares = self._shares()
        for run in range(1, LONGEST_RUN + 1):
            counts = [share * run for share in shares]
            if all(math.isclose(count, round(count), abs_tol=1e-9) for count in counts):
                return tuple(round(count) for count in counts)
        raise ValueError(
            f"balance 'exact' needs shares that a run of at most {LONGEST_RUN} segments holds exactly, such as 0.25; got "
            f"{list(shares)}"
        )

    def _shares(self) -> tuple[float, ...]:
        p = self.probability
        return p if isinstance(p, tuple) else (1.0 - p, p)

    def shares(self, kind: SiteKind, choices: int) -> tuple[float, ...]:
        shares = self._shares()
        if len(shares) != choices:
            raise ConfigError(
                f"router 'segment_random' has probability {self.probability} for {len(shares)} choices, "
                f"but the site has {choices}; list one probability per choice."
            )
        return shares


class LearnedConfig(RouterConfig):
    """A linear router with straight-through weights and a loss that holds its rate (amor.md section 10, point 20).

    target_rate: share of tokens that should take an expensive choice (1 and up, shared equally).
    loss_weight: of the squared distance between the shares and their targets; 0.1 as in AMOR v1.
    temperature: divides the scores before the soft weights; smaller is closer to the hard choice.
    segment:     tokens that share the choice of their segment's first token, or None for a choice per token.
    shift:       what an expensive choice's score must exceed; operating points ``threshold:SHIFT`` move it in a trained model.
    """

    target_rate: Share = 0.4
    loss_weight: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    temperature: Positive = 1.0
    segment: Annotated[int, Field(ge=1)] | None = None
    shift: float = later(0.0, allow_inf_nan=False)

    def shares(self, kind: SiteKind, choices: int) -> tuple[float, ...]:
        return (1.0 - self.target_rate, *[self.target_rate / (choices - 1)] * (choices - 1))


class OracleConfig(RouterConfig):
    """Labels as a router: the upper bound of any rule that looks for positions worth the compute (amor.md section 5).

    rate: share of positions that the task scores, for ledgers before anything was measured; 0.1 suits recall. The real
        share is the task's.
    """

    rate: Share = 0.1

    def shares(self, kind: SiteKind, choices: int) -> tuple[float, ...]:
        return (1.0 - self.rate, *[0.0] * (choices - 2), self.rate)
