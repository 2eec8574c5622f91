"""Built-in cost models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from crossbreed.core.contracts.cost import CostModelDescriptor
from crossbreed.core.contracts.hookspecs import hookimpl


class AnalyticConfig(BaseModel):
    """The analytic model counts by fixed conventions and has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RooflineConfig(BaseModel):
    """launches_per_run: operations that one run of a part launches, in one forward pass.

    24 is the middle of what six families of hybrids dispatch on the reference path, 19 to 31; with experts it is 60 to 74.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    launches_per_run: int = Field(default=24, ge=0)


class MeasuredConfig(BaseModel):
    """Which profiles are fitted, and whether to answer outside their range.

    policy:      execution policy of the profiles (``reference``, ``best`` or ``forced:...``).
    compiled:    profiles whose kernels were recorded once and replayed, or launched one by one; None takes those that were
                 recorded where there are any.
    extrapolate: answer for architectures larger or smaller than every one that was profiled.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: str = "best"
    compiled: bool | None = None
    extrapolate: bool = False


@hookimpl
def register_cost_models() -> list[CostModelDescriptor]:
    return [
        CostModelDescriptor(
            name="analytic",
            factory="crossbreed.plugins.costs.analytic:Analytic",
            config=AnalyticConfig,
            summary="FLOPs, parameters and bytes counted from the genome by the ledger's conventions",
        ),
        CostModelDescriptor(
            name="roofline",
            factory="crossbreed.plugins.costs.roofline:Roofline",
            config=RooflineConfig,
            summary="the analytic ledger with seconds from a device's ceilings: arithmetic or memory, plus launches",
            needs_device=True,
        ),
        CostModelDescriptor(
            name="measured",
            factory="crossbreed.plugins.costs.measured:Measured",
            config=MeasuredConfig,
            summary="the analytic ledger with seconds fitted to stored profiles, and the fit's held-out error",
            needs_device=True,
        ),
    ]
