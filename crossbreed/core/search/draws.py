"""Sources of draws for search spaces: fixed answers, and the answers' ranges as they were asked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crossbreed.core.errors import ConfigError

Scalar = str | int | float | bool


@dataclass(frozen=True)
class Options:
    """A finite list, each option as JSON text, so that ``1``, ``1.0`` and ``True`` stay three options."""

    texts: tuple[str, ...]

    @staticmethod
    def of(values: Sequence[Scalar]) -> Options:
        return Options(tuple(dict.fromkeys(map(json.dumps, values))))

    def holds(self, value: Any) -> bool:
        return json.dumps(value) in self.texts

    def joined(self, other: Options) -> Options:
        return Options(tuple(dict.fromkeys((*self.texts, *other.texts))))

    def nearest(self, value: Any) -> Any:
        """``value`` where it is an option, else the first option."""
        return value if self.holds(value) else json.loads(self.texts[0])


@dataclass(frozen=True)
class Grid:
    """Whole numbers ``low, low + step, ... <= high``."""

    low: int
    high: int
    step: int

    def holds(self, value: Any) -> bool:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.low <= value <= self.high and (value - self.low) % self.step == 0

    def joined(self, other: Grid) -> Grid:
        low = min(self.low, other.low)
        step = math.gcd(self.step, other.step, self.low - low, other.low - low)
        return Grid(low, max(self.high, other.high), step)

    def nearest(self, value: Any) -> int:
        if not isinstance(value, int | float) or not math.isfinite(value):
            return self.low
        last = (self.high - self.low) // self.step
        return self.low + self.step * min(last, max(0, round((value - self.low) / self.step)))


@dataclass(frozen=True)
class Span:
    """Real numbers in [low, high]; ``log`` says how to sample them."""

    low: float
    high: float
    log: bool

    def holds(self, value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def joined(self, other: Span) -> Span:
        return Span(min(self.low, other.low), max(self.high, other.high), self.log and other.log)

    def nearest(self, value: Any) -> float:
        if not isinstance(value, int | float) or math.isnan(value):
            return self.low
        return float(min(self.high, max(self.low, value)))


Domain = Options | Grid | Span


def joined(old: Domain | None, new: Domain) -> Domain:
    """The domain that holds both; a name that changed its kind takes the new one."""
    if isinstance(new, Options):
        return old.joined(new) if isinstance(old, Options) else new
    if isinstance(new, Grid):
        return old.joined(new) if isinstance(old, Grid) else new
    return old.joined(new) if isinstance(old, Span) else new


@dataclass
class Recorder:
    """Base of all draws: remembers each name's answer and the domain it was asked from."""

    answers: dict[str, Any] = field(default_factory=dict)
    domains: dict[str, Domain] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Scalar]) -> Any:
        if not options:
            raise ConfigError(f"draw {name!r} has no options to choose from")
        return self._answer(name, Options.of(options))

    def integer(self, name: str, low: int, high: int, step: int = 1) -> int:
        if low > high or step < 1:
            raise ConfigError(f"draw {name!r} needs low <= high and step >= 1, got {low}, {high}, {step}")
        return int(self._answer(name, Grid(low, high - (high - low) % step, step)))

    def number(self, name: str, low: float, high: float, log: bool = False) -> float:
        if not (math.isfinite(low) and math.isfinite(high) and low <= high and (low > 0 or not log)):
            raise ConfigError(
                f"draw {name!r} needs finite low <= high (low > 0 on a log scale), got {low}, {high}"
            )
        return float(self._answer(name, Span(low, high, log)))

    def _answer(self, name: str, domain: Domain) -> Any:
        value = self.answers[name] if name in self.answers else self.value(name, domain)
        # Asked again with other options: the first answer stands while it is legal.
        value = domain.nearest(value)
        self.answers[name] = value
        self.domains[name] = joined(self.domains.get(name), domain)
        return value

    def value(self, name: str, domain: Domain) -> Any:
        """An answer for a name asked for the first time."""
        raise NotImplementedError


@dataclass
class Fixed(Recorder):
    """Answers from a dict; a name it lacks gets its first option or lowest number.

    ``strict``: a recorded answer that is not an option any more raises ConfigError; otherwise the nearest is taken.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = True

    def value(self, name: str, domain: Domain) -> Any:
        if name not in self.values:
            return domain.nearest(None)
        value = self.values[name]
        if self.strict and not domain.holds(value):
            raise ConfigError(f"draw {name!r} is {value!r}, which is not in {_shown(domain)}")
        return value


def _shown(domain: Domain) -> str:
    if isinstance(domain, Options):
        return f"its options {', '.join(domain.texts)}"
    step = f" by {domain.step}" if isinstance(domain, Grid) and domain.step > 1 else ""
    return f"its range {domain.low} to {domain.high}{step}"
