"""Depth policies: how often a stage's blocks run, and which weights each run uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from crossbreed.core.contracts.space import Range


class Step(NamedTuple):
    """One run of one block: at ``depth``, block ``block`` of the stage, with weight set ``weights``."""

    depth: int
    block: int
    weights: int


class DepthPolicy:
    """Base class of depth policies. Built as ``factory(config)``; needs no torch."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        """The whole order of runs, finite and the same each time. Depths count from 0 without gaps."""
        raise NotImplementedError(f"{type(self).__name__} must define plan(repeats, blocks)")

    def weight_sets(self, repeats: int) -> int:
        """How many separate copies of the stage's weights exist."""
        return 1 + max(step.weights for step in self.plan(repeats, 1))

    def injects_input(self) -> bool:
        """Whether the stage's input is added to the stream again at the start of every repeat after the first."""
        return False


@dataclass(frozen=True)
class DepthPolicyDescriptor:
    """How a depth policy is offered to the host.

    name:     what genomes, studies and commands call it; unique among its kind.
    factory:  ``"module:Class"``, the class, or a callable without arguments that imports late and returns it.
    config:   a pydantic model of its settings, every one with a default; it should forbid unknown keys.
    summary:  what it is in one line, for listings.
    shares_weights: whether repeats reuse one set of weights, so that they cost FLOPs and no parameters.
    ranges:   settings that a search may draw, with their ranges.
    """

    name: str
    factory: str | Callable[..., Any]
    config: type[BaseModel]
    summary: str
    shares_weights: bool
    ranges: Mapping[str, Range] = field(default_factory=dict)
