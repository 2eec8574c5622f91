"""All draws of a search space in a fixed order, one at a time: an odometer over the names it asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from crossbreed.core.contracts.space import SearchSpace, Setting
from crossbreed.core.errors import PluginError
from crossbreed.core.genome import Architecture
from crossbreed.core.search.draws import Domain, Grid, Options, Recorder, Span

LEVELS = 5
"""Values taken of a real range: its ends and what divides it evenly, on a log scale where it is sampled on one."""


def enumerate_draws(
    space: SearchSpace, setting: Setting, levels: int = LEVELS
) -> Iterator[tuple[Architecture, dict[str, Any]]]:
    """Every proposal of a space with its answers, lazily; the name asked last varies fastest.

    A name that is asked only under some answers of others is varied only there, so nothing is listed twice. Raises
    PluginError for a space whose equal draws ask for other names.
    """
    wheels: list[_Wheel] = []
    while True:
        walk = _Walk(wheels=wheels, levels=levels)
        architecture = space.propose(walk, setting)
        yield architecture, dict(walk.answers)
        del wheels[walk.turned :]
        while wheels and wheels[-1].last:
            wheels.pop()
        if not wheels:
            return
        wheels[-1].index += 1


@dataclass
class _Wheel:
    """One name's legal values, and which of them it shows."""

    name: str
    values: Sequence[Any]
    index: int = 0

    @property
    def last(self) -> bool:
        return self.index == len(self.values) - 1


@dataclass
class _Walk(Recorder):
    """Answers with what the wheels show; a name beyond them adds one at its first value."""

    wheels: list[_Wheel] = field(default_factory=list)
    levels: int = LEVELS
    turned: int = 0

    def value(self, name: str, domain: Domain) -> Any:
        if self.turned == len(self.wheels):
            self.wheels.append(_Wheel(name, _values(domain, self.levels)))
        wheel = self.wheels[self.turned]
        if wheel.name != name:
            raise PluginError(
                f"a search space asked for {name!r} where it asked for {wheel.name!r} before, after equal answers; "
                f"equal draws must give equal architectures"
            )
        self.turned += 1
        return wheel.values[wheel.index]


def _values(domain: Domain, levels: int) -> Sequence[Any]:
    if isinstance(domain, Options):
        return [json.loads(text) for text in domain.texts]
    if isinstance(domain, Grid):
        return range(domain.low, domain.high + 1, domain.step)
    return _spread(domain, levels)


def _spread(span: Span, levels: int) -> list[float]:
    if span.low == span.high:
        return [span.low]
    shares = [i / (levels - 1) for i in range(levels)]
    if not span.log:
        return [span.low + share * (span.high - span.low) for share in shares]
    low, high = math.log(span.low), math.log(span.high)
    inner = [math.exp(low + share * (high - low)) for share in shares[1:-1]]
    return [span.low, *inner, span.high]
