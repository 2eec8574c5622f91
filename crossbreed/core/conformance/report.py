"""What a check found: an outcome for each rule, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from crossbreed.core.conformance.case import Case
from crossbreed.core.conformance.rule import Rule
from crossbreed.core.contracts.parts import Kind

Status = Literal["passed", "failed", "not_applicable"]


@dataclass(frozen=True)
class Outcome:
    """What came of one rule.

    why:     what went wrong, or why the rule does not apply.
    case:    the smallest input found on which the rule does not hold.
    numbers: what was measured there.
    cases:   how many inputs were tried.
    """

    rule: Rule
    status: Status
    why: str = ""
    case: Case | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    cases: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        """Why, with the smallest input and the numbers."""
        measured = ", ".join(f"{name} {value:.3g}" for name, value in self.numbers.items())
        at = f" at {self.case}" if self.case is not None else ""
        return f"{self.why}{at}" + (f": {measured}" if measured else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule.name,
            "says": self.rule.says,
            "status": self.status,
            "why": self.why,
            "settings": None if self.case is None else dict(self.case.settings),
            "sizes": None if self.case is None else dict(self.case.sizes),
            "numbers": dict(self.numbers),
            "cases": self.cases,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Report:
    """The outcomes of all rules for one plugin."""

    kind: Kind
    name: str
    source: str
    profile: str
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether no rule failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.status == "failed")

    @property
    def seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "source": self.source,
            "profile": self.profile,
            "passed": self.passed,
            "seconds": self.seconds,
            "rules": [outcome.as_dict() for outcome in self.outcomes],
        }
