"""Cases: the small inputs on which a rule is tried, and legal settings drawn from what a descriptor states."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from crossbreed.core.contracts.space import Choices, Integers, Range
from crossbreed.core.errors import ConfigError

SMALLEST, WIDE = 6, (16, 24, 48, 96)
"""How many of the smallest values of a whole number are drawn, and the larger ones that are drawn beside them."""


@dataclass(frozen=True)
class Case:
    """One input: a plugin's settings and the sizes that the rule declares, such as tokens or a split point."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, size: str) -> int:
        return self.sizes[size]

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings.items()) or "defaults"
        sizes = ", ".join(f"{name} {value}" for name, value in self.sizes.items())
        return f"{sizes} ({settings})" if sizes else f"({settings})"


@dataclass(frozen=True)
class Sizes:
    """Sizes that a rule tries, smallest first: of each name its values, together where ``legal``.

    ``suite`` holds what the short profile tries; every value in it is one of ``full``.
    """

    full: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    suite: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    legal: Callable[[Mapping[str, int]], bool] = lambda sizes: True

    def __post_init__(self) -> None:
        for name, values in self.full.items():
            if list(values) != sorted(set(values)):
                raise ValueError(f"sizes {name!r} must ascend, got {values}")
        for name, values in self.suite.items():
            if not set(values) <= set(self.full[name]):
                raise ValueError(f"sizes {name!r} of the suite profile are not among the full ones: {values}")

    def points(self, profile: str) -> Iterator[dict[str, int]]:
        """All legal combinations, the first name changing slowest, each ascending."""
        values = {**self.full, **(self.suite if profile == "suite" else {})}
        for point in product(*values.values()):
            sizes = dict(zip(values, point, strict=True))
            if self.legal(sizes):
                yield sizes


def legal_settings(
    ranges: Mapping[str, Range], legal: Callable[[dict[str, Any]], object], count: int, seed: int = 0
) -> tuple[dict[str, Any], ...]:
    """Up to ``count`` different settings that ``legal`` accepts without a ConfigError, drawn from ``ranges``."""
    generator = random.Random(seed)
    found: list[dict[str, Any]] = []
    # Settings constrain each other, so some draws are refused; a plugin that refuses nearly all gets fewer.
    for _ in range(20 * count):
        if len(found) == count or not ranges:
            break
        drawn = {name: draw(values, generator) for name, values in sorted(ranges.items())}
        try:
            legal(drawn)
        except ConfigError:
            continue
        if drawn not in found:
            found.append(drawn)
    return tuple(found)


def draw(values: Range, generator: random.Random) -> Any:
    """One value; of whole numbers mostly a small one."""
    if isinstance(values, Choices):
        return generator.choice(values.values)
    if isinstance(values, Integers):
        grid = values.values()
        return generator.choice([*grid[:SMALLEST], *(value for value in WIDE if value in grid)])
    return generator.uniform(values.low, values.high)
