"""Small cost models that are right, and how to offer one under the name ``small``. Broken ones change one number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from crossbreed import Architecture, CostModel, CostModelDescriptor, Ledger, Shape


class Config(BaseModel, frozen=True, extra="forbid"):
    pass


class Counted(CostModel):
    """What another cost model says, with changes."""

    model = "analytic"

    def __init__(self, config: Any, parts: Any) -> None:
        super().__init__(config, parts)
        self.costs = parts.factory("cost", self.model)(parts.config("cost", self.model, {}), parts)

    def estimate(
        self,
        architecture: Architecture,
        shape: Shape,
        device: Mapping[str, Any] | None = None,
        rates: Mapping[str, tuple[float, ...]] | None = None,
    ) -> Ledger:
        ledger = self.costs.estimate(architecture, shape, device, rates)
        return replace(ledger, **self.changes(ledger, architecture, shape, rates))

    def changes(self, ledger: Ledger, architecture: Architecture, shape: Shape, rates: Any) -> dict[str, Any]:
        return {}


class Roofline(Counted):
    model = "roofline"


class Measured(Counted):
    model = "measured"


def offered(
    cls: Any = Counted, *, config: Any = Config, needs_device: bool = False
) -> list[CostModelDescriptor]:
    return [CostModelDescriptor("small", cls, config, "a small cost model", needs_device=needs_device)]
