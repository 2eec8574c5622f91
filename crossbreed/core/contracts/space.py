"""Search spaces: how a candidate is proposed, and the ranges that plugins allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel

from crossbreed.core.contracts.parts import Parts
from crossbreed.core.genome import Architecture


@dataclass(frozen=True)
class Choices:
    """A finite set of values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Integers:
    """Whole numbers ``low, low + step, ...`` up to ``high`` inclusive."""

    low: int
    high: int
    step: int = 1

    def values(self) -> range:
        return range(self.low, self.high + 1, self.step)


@dataclass(frozen=True)
class Floats:
    """Real numbers in [low, high], on a log scale if ``log``."""

    low: float
    high: float
    log: bool = False


Range = Choices | Integers | Floats


class Draw(Protocol):
    """The source of choices a space draws from: a sampler, a fixed list, or a recorded candidate."""

    def choose(self, name: str, options: Sequence[str | int | float | bool]) -> Any:
        """One of ``options``. The same name may be asked again with more options later; old answers stay valid."""
        ...

    def integer(self, name: str, low: int, high: int, step: int = 1) -> int: ...

    def number(self, name: str, low: float, high: float, log: bool = False) -> float: ...


@dataclass(frozen=True)
class Setting:
    """What a proposal is for: the task's vocabulary and length, the model width, and the parts allowed.

    ``mixers``, ``routers`` and ``depth`` are the names the study allows, already reduced to capable ones.
    """

    vocab: int
    length: int
    d_model: int
    mixers: tuple[str, ...]
    routers: tuple[str, ...]
    depth: tuple[str, ...]
    parts: Parts


class SearchSpace:
    """Base class of search spaces. Built as ``factory(config)``."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        """One architecture, before its free dimensions are matched to the budget.

        Equal draws give equal architectures. Only legal points: a draw must never lead to a ConfigError.
        """
        raise NotImplementedError(f"{type(self).__name__} must define propose(draw, setting)")

    def starting_points(self, setting: Setting) -> list[dict[str, Any]]:
        """Draws (name -> value) to try first, so that every allowed part is seen once before the sampler takes over."""
        return []

    def family(self, architecture: Architecture) -> str:
        """A short label for plots: architectures of one family differ only in numbers."""
        raise NotImplementedError(f"{type(self).__name__} must define family(architecture)")


@dataclass(frozen=True)
class SearchSpaceDescriptor:
    """How a search space is offered to the host.

    name:     what genomes, studies and commands call it; unique among its kind.
    factory:  ``"module:Class"``, the class, or a callable without arguments that imports late and returns it.
    config:   a pydantic model of its settings, every one with a default; it should forbid unknown keys.
    summary:  what it is in one line, for listings.
    ranges:   settings that conformance checks try, with their ranges; a study names its own.
    """

    name: str
    factory: str | Callable[..., Any]
    config: type[BaseModel]
    summary: str
    ranges: Mapping[str, Range] = field(default_factory=dict)
