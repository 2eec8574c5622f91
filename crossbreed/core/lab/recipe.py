"""The recipe: everything about a run's training that is not the architecture or the task."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from crossbreed.core.errors import ConfigError


def _whole(value: object) -> object:
    """Accept 2e6 for 2000000, as YAML writers do; anything with a fraction is left for the rule to refuse."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, BeforeValidator(_whole)]


class Recipe(BaseModel):
    """The study file's ``train`` section.

    tokens:       training tokens of a whole run; the learning rate's cosine ends there.
    rungs:        how many rungs, each ``reduction`` times longer than the one before, or their shares of ``tokens``.
    batch:        sequences per optimiser step.
    lr:           the learning rate, or a list: every architecture is then tuned over the same settings. A run has one.
    warmup:       share of the steps over which the learning rate rises linearly.
    final_lr:     learning rate of the last step as a share of ``lr``.
    clip:         largest global gradient norm.
    dtype:        ``float32``, or ``bfloat16`` for autocast over float32 weights (CUDA only).
    log_every:    steps between points of the training curve; finiteness is checked at the same steps.
    eval_batch:   sequences per evaluation batch; the score does not depend on it beyond rounding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    tokens: Count = Field(ge=1)
    rungs: Annotated[int, BeforeValidator(_whole)] | tuple[float, ...] = 1
    reduction: float = Field(default=3.0, gt=1.0)
    batch: Count = Field(default=32, ge=1)
    lr: float | tuple[float, ...] = 3e-3
    warmup: float = Field(default=0.05, ge=0.0, lt=1.0)
    final_lr: float = Field(default=0.1, ge=0.0, le=1.0)
    weight_decay: float = Field(default=0.1, ge=0.0)
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = Field(default=1.0, gt=0.0)
    dtype: Literal["float32", "bfloat16"] = "float32"
    log_every: Count = Field(default=10, ge=1)
    eval_batch: Count = Field(default=64, ge=1)

    @field_validator("rungs")
    @classmethod
    def _rungs_rise(cls, rungs: int | tuple[float, ...]) -> int | tuple[float, ...]:
        if isinstance(rungs, int):
            if rungs < 1:
                raise ValueError("rungs must be at least 1")
            return rungs
        rising = all(a < b for a, b in pairwise(rungs))
        if not rungs or not rising or rungs[0] <= 0 or not math.isclose(rungs[-1], 1.0):
            raise ValueError(
                f"rungs as shares of tokens must rise from above 0 and end at 1, got {list(rungs)}"
            )
        return rungs

    @field_validator("lr")
    @classmethod
    def _lr_is_above_0(cls, lr: float | tuple[float, ...]) -> float | tuple[float, ...]:
        settings = lr if isinstance(lr, tuple) else (lr,)
        if not settings or min(settings) <= 0 or len(set(settings)) < len(settings):
            raise ValueError("lr must be greater than 0, or a list of different numbers greater than 0")
        return lr

    @field_validator("betas")
    @classmethod
    def _betas_decay(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas must lie in [0, 1), got {list(betas)}")
        return betas

    @model_validator(mode="after")
    def _rungs_hold_tokens(self) -> Recipe:
        tokens = self.rung_tokens()
        if tokens[0] < 1 or any(a >= b for a, b in pairwise(tokens)):
            raise ValueError(
                f"{len(tokens)} rungs with reduction {self.reduction:g} do not fit into {self.tokens} tokens"
            )
        return self

    @property
    def settings(self) -> tuple[float, ...]:
        """The learning rates that every architecture is tuned over; one where there is nothing to tune."""
        return self.lr if isinstance(self.lr, tuple) else (self.lr,)

    def at(self, lr: float) -> Recipe:
        """The recipe of one run, with its one learning rate."""
        return self.model_copy(update={"lr": lr})

    def shared(self, devices: int) -> Recipe:
        """The recipe of one of ``devices`` by itself: its share of the rows of every batch."""
        return self.model_copy(update={"batch": self.batch // devices})

    @property
    def peak_lr(self) -> float:
        """The one learning rate of a run's recipe. Raises ConfigError for a recipe that is still to be tuned."""
        if isinstance(self.lr, tuple):
            raise ConfigError(
                f"train.lr is {list(self.lr)}; a run is trained at one of them, and this recipe says not which"
            )
        return self.lr

    def rung_tokens(self) -> list[int]:
        """Training tokens at the end of each rung, rising; the last is ``tokens``."""
        if isinstance(self.rungs, int):
            shares = [self.reduction**-i for i in reversed(range(self.rungs))]
        else:
            shares = list(self.rungs)
        return [round(self.tokens * share) for share in shares[:-1]] + [self.tokens]

    def steps(self, tokens: int, length: int) -> int:
        """Optimiser steps that reach ``tokens``, for rows of ``length`` tokens; the last step is never cut short."""
        return math.ceil(tokens / (self.batch * length))

    def lr_at(self, step: int, total: int) -> float:
        """Learning rate of step ``step`` (from 0) of ``total``: linear warm-up, then a cosine to ``final_lr * lr``."""
        warmup = math.ceil(self.warmup * total)
        if step < warmup:
            return self.peak_lr * (step + 1) / warmup
        progress = (step - warmup) / max(1, total - 1 - warmup)
        floor = self.final_lr
        return self.peak_lr * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
