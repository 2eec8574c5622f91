"""Settings of the readers: what one way of reading keys and values needs, without projections."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from crossbreed.core.contracts.settings import later
from crossbreed.plugins.mixers.configs.common import Config


class ReaderSettings(Config):
    """What every reader's settings hold."""

    writes: Literal["always", "when_read"] = Field(
        default="always",
        description="Every token is written, as the rule says; when_read is the control that breaks it: a token this "
        "reader does not read leaves no trace in its state. Charged as always, since the work is done and then masked.",
    )


class SoftmaxSettings(ReaderSettings):
    """Softmax attention over cached keys and values."""

    window: int | None = Field(
        default=None, ge=1, description="Tokens a query sees, itself included; None sees the whole document."
    )
    qk_norm: bool = Field(
        default=False,
        description="RMS-normalise queries and keys, with a gain per head; off as in Llama and Oryx.",
    )
    l2_norm: Literal["none", "k", "qk"] = Field(
        default="none",
        description="L2-normalise keys, or queries too, as the delta rule does; off, since on attention it is harmful "
        "(Oryx, table 7). The scale stays as it is.",
    )
    scale: float | None = Field(
        default=None, gt=0, description="Factor on the scores; None is 1/sqrt(head size), the usual one."
    )
    top_k: int | None = later(
        None,
        ge=1,
        description="Keys that a query attends to: those of the largest scores, and what ties with the last of them; None "
        "attends to all, as everybody but AMOR's first version (3 to 32). All keys are scored.",
    )


class DecaySettings(ReaderSettings):
    """How the decays of a recurrence start."""

    dt_min: float = Field(default=1e-3, gt=0, description="Smallest initial time step (Mamba-2's value).")
    dt_max: float = Field(default=0.1, gt=0, description="Largest initial time step (Mamba-2's value).")
    a_min: float = Field(default=1.0, gt=0, description="Smallest initial decay rate A (Mamba-2's value).")
    a_max: float = Field(default=16.0, gt=0, description="Largest initial decay rate A (Mamba-2's value).")

    @model_validator(mode="after")
    def _ordered(self) -> DecaySettings:
        for low, high in (("dt_min", "dt_max"), ("a_min", "a_max")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(
                    f"{low} ({getattr(self, low)}) must not exceed {high} ({getattr(self, high)})"
                )
        return self


class SsdSettings(DecaySettings):
    """The scalar-decay recurrence of Mamba-2."""

    skip: bool = Field(
        default=True,
        description="Add D times the value to each head's output, as Mamba-2 does; D starts at 1.",
    )


class DeltaSettings(DecaySettings):
    """The gated delta rule."""

    a_min: float = Field(
        default=0.01, gt=0, description="Smallest initial decay rate; above 0 so that its log exists."
    )
    qk_l2_norm: bool = Field(
        default=True,
        description="L2-normalise queries and keys of this reader; the delta rule is unstable without.",
    )
    negative_eigenvalues: bool = later(
        False,
        description="Write with b = 2 sigmoid instead of sigmoid, so that a step's matrix has eigenvalues down to -1; off, as "
        "Oryx's source and fla have it where nothing is said.",
    )
