"""Cost models: predict the ledger of an architecture at a shape, and for measured ones the speed on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from crossbreed.core.contracts.parts import Parts
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Ledger, Shape


class CostModel:
    """Base class of cost models. Built as ``factory(config, parts)``."""

    def __init__(self, config: Any, parts: Parts) -> None:
        self.config = config
        self.parts = parts

    def estimate(
        self,
        architecture: Architecture,
        shape: Shape,
        device: Mapping[str, Any] | None = None,
        rates: Mapping[str, tuple[float, ...]] | None = None,
    ) -> Ledger:
        """The ledger at ``shape.batch`` x ``shape.tokens`` in ``shape.dtype`` (all phases; ``shape.phase`` is ignored).

        ``device``: what models that predict time know of a device: its ``name``; its ceilings ``matrix_flops_per_s`` (by
        dtype), ``copy_bytes_per_s`` and ``launch_s``; ``profiles`` measured on it. Their answer is in ``Ledger.prediction``,
        in seconds; without what they need they raise ConfigError. ``rates`` (site -> share per choice) replace
        the routers' nominal ones, for realised ledgers.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define estimate(architecture, shape, device, rates)"
        )


@dataclass(frozen=True)
class CostModelDescriptor:
    """How a cost model is offered to the host.

    name:     what genomes, studies and commands call it; unique among its kind.
    factory:  ``"module:Class"``, the class, or a callable without arguments that imports late and returns it.
    config:   a pydantic model of its settings, every one with a default; it should forbid unknown keys.
    summary:  what it is in one line, for listings.
    needs_device: whether it must be told of a device, because it predicts time.
    """

    name: str
    factory: str | Callable[..., Any]
    config: type[BaseModel]
    summary: str
    needs_device: bool = False
