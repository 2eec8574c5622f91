"""Offers the router ``margin_gate``. Importing this imports no torch, so that listing plugins stays quick."""

from __future__ import annotations

from statistics import NormalDist
from typing import Literal

from pydantic import BaseModel, Field

from crossbreed import ConfigError, Floats, RouterCapabilities, RouterDescriptor, hookimpl


class MarginGateConfig(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The margin m of a token is p1 - p2, the gap between its two likeliest next tokens: near 0 the model is torn.

    threshold: ``running``: choose 1 where m < mu - kappa * sigma, over a running median and standard deviation, so that the
        rate keeps its place while the model sharpens. ``fixed``: choose 1 where m < tau.
    kappa:     how many standard deviations below the median a margin must lie.
    tau:       the fixed threshold.
    momentum:  share of the running values that one step keeps.
    mu_init, sigma_init: what they start from.
    segment:   tokens that share the choice of their segment's first token, or None for a choice per token.
    """

    threshold: Literal["running", "fixed"] = "running"
    kappa: float = 0.2
    tau: float = Field(default=0.3, ge=0, le=1)
    momentum: float = Field(default=0.99, ge=0, lt=1)
    mu_init: float = Field(default=0.5, ge=0, le=1)
    sigma_init: float = Field(default=0.25, gt=0)
    segment: int | None = Field(default=None, ge=1)

    def shares(self, choices: int) -> tuple[float, float]:
        """Nominal shares of choices 0 and 1, on Gaussian margins. Raises ConfigError unless there are two choices."""
        if choices != 2:
            raise ConfigError(f"router 'margin_gate' tells 2 choices apart, got {choices}.")
        margins = NormalDist(self.mu_init, self.sigma_init)
        below = self.tau if self.threshold == "fixed" else self.mu_init - self.kappa * self.sigma_init
        return 1.0 - margins.cdf(below), margins.cdf(below)


@hookimpl
def register_routers() -> list[RouterDescriptor]:
    return [
        RouterDescriptor(
            name="margin_gate",
            factory="margin_gate.gate:MarginGate",
            config=MarginGateConfig,
            capabilities=RouterCapabilities(sites=("gate", "halt"), max_choices=2),
            summary="spends compute where the two likeliest next tokens are close",
            ranges={"kappa": Floats(-0.5, 1.0)},
        )
    ]
