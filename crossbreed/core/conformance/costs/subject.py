"""A cost model under check: what it says of small models made of parts whose costs are known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.costs import device
from crossbreed.core.conformance.subject import Subject
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.ledger import QUANTITIES, Ledger, Phase, Shape
from crossbreed.core.model.language_model import LanguageModel

FLOPS = ("training_flops_per_token", "prefill_flops_per_token", "decode_flops_per_token")
EXECUTED = tuple(f"executed_{name}" for name in FLOPS)
COUNTS = (
    *FLOPS,
    *EXECUTED,
    "recompute_flops_per_token",
    "weight_bytes",
    "scratch_bytes",
    "kept_bytes_per_token",
    "decode_traffic_bytes_per_token",
    *(name for name in QUANTITIES if name not in FLOPS),
)
"""Every number of a ledger."""
HALF = (0.5, 0.5)
FEW = 8
"""Architectures profiled on the simulated device where only a ledger is asked for."""


class CostSubject(Subject):
    """A registered cost model, asked about models of probes."""

    kind = "cost"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self._devices: dict[tuple[Shape, int, tuple[Phase, ...]], dict[str, Any]] = {}
        super().__init__(*arguments, **named)

    @cached_property
    def parts(self) -> Registry:
        return probes.with_probes(self.registry)

    def ranges(self) -> Mapping[str, Any]:
        # Cost models have no settings that a search draws.
        return {}

    def model(self, settings: Mapping[str, Any]) -> CostModel:
        """A cost model of its own."""
        made: CostModel = self.registry.factory("cost", self.name)(self.config(settings), self.parts)
        return made

    def ask(
        self,
        model: CostModel,
        architecture: Architecture,
        shape: Shape,
        rates: Mapping[str, tuple[float, ...]] | None = None,
    ) -> Ledger:
        """What a cost model says; one that needs a device is told of the simulated one and some profiles at the shape."""
        return model.estimate(architecture, shape, self.device(shape, FEW, ("prefill",)), rates)

    def ledger(
        self,
        settings: Mapping[str, Any],
        architecture: Architecture,
        rates: Mapping[str, tuple[float, ...]] | None = None,
        **shape: Any,
    ) -> Ledger:
        """What a fresh cost model says of an architecture, at one sequence of 24 tokens unless ``shape`` says otherwise."""
        asked = Shape(**{"tokens": 24, **shape})
        key = repr((settings, architecture, rates, asked))
        if key not in self._ledgers:
            self._ledgers[key] = self.ask(self.model(settings), architecture, asked, rates)
        return self._ledgers[key]

    def device(self, shape: Shape, count: int, phases: tuple[Phase, ...]) -> dict[str, Any] | None:
        """The simulated device, with profiles of so many architectures, for cost models that need one."""
        if not self.descriptor.needs_device:
            return None
        key = shape, count, phases
        if key not in self._devices:
            profiles = device.profiles(device.profiled(count), shape, phases)
            self._devices[key] = {**device.ceilings(), "profiles": profiles}
        return self._devices[key]

    def built(self, architecture: Architecture) -> LanguageModel:
        return LanguageModel(architecture, self.parts, seed=1)
