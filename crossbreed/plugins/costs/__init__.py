"""Built-in cost models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from crossbreed.core.contracts.cost import CostModelDescriptor
from crossbreed.core.contracts.hookspecs import hookimpl


class AnalyticConfig(BaseModel):
    """The analytic model counts by fixed conventions and has no settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@hookimpl
def register_cost_models() -> list[CostModelDescriptor]:
    return [
        CostModelDescriptor(
            name="analytic",
            factory="crossbreed.plugins.costs.analytic:Analytic",
            config=AnalyticConfig,
            summary="FLOPs, parameters and bytes counted from the genome by the ledger's conventions",
        )
    ]
