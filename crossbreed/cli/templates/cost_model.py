"""my_cost_model: the analytic ledger, with what an allocator holds in training beside what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from crossbreed import Architecture, CostModel, CostModelDescriptor, Ledger, Parts, Shape, hookimpl


class MyCostModelConfig(BaseModel, frozen=True, extra="forbid"):
    """reserve: bytes held beside each byte in use at the peak of a training step."""

    reserve: float = Field(default=0.05, ge=0, allow_inf_nan=False)


class MyCostModel(CostModel):
    """Built on another cost model, which it finds by name; ``parts`` answers for everything that is registered."""

    def __init__(self, config: Any, parts: Parts) -> None:
        super().__init__(config, parts)
        self.analytic = parts.factory("cost", "analytic")(parts.config("cost", "analytic", {}), parts)

    def estimate(
        self,
        architecture: Architecture,
        shape: Shape,
        device: Mapping[str, Any] | None = None,
        rates: Mapping[str, tuple[float, ...]] | None = None,
    ) -> Ledger:
        """Every field of a ledger carries its unit in its name. No weight may be built here: searches ask often.

        What is counted rather than estimated (parameters, state, executed FLOPs) is compared with built models by
        ``crossbreed check``.
        """
        ledger: Ledger = self.analytic.estimate(architecture, shape, device, rates)
        return replace(ledger, training_peak_bytes=ledger.training_peak_bytes * (1 + self.config.reserve))


@hookimpl
def register_cost_models() -> list[CostModelDescriptor]:
    return [
        CostModelDescriptor(
            name="my_cost_model",
            factory=MyCostModel,
            config=MyCostModelConfig,
            summary="the analytic model with an allocator's reserve",
        )
    ]
