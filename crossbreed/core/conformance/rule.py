"""Rules: what must hold for every plugin of a kind, and how it is measured."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.errors import ConfigError

if TYPE_CHECKING:
    from crossbreed.core.conformance.subject import Subject

HOMES: dict[Kind, str] = {
    "mixer": "crossbreed.core.conformance.mixers",
    "router": "crossbreed.core.conformance.routers",
    "depth": "crossbreed.core.conformance.depth",
    "cost": "crossbreed.core.conformance.costs",
    "task": "crossbreed.core.conformance.tasks",
    "space": "crossbreed.core.conformance.spaces",
}
"""The module of each kind: importing it registers the kind's rules, and ``SUBJECT`` in it is what they are given."""

_RULES: dict[Kind, dict[str, Rule]] = {}


class Broken(AssertionError):
    """A rule does not hold. ``numbers`` are what was measured."""

    def __init__(self, sentence: str, **numbers: float) -> None:
        super().__init__(sentence)
        self.numbers = numbers


def require(holds: bool, sentence: str, **numbers: float) -> None:
    """Raise Broken unless ``holds``."""
    if not holds:
        raise Broken(sentence, **numbers)


@dataclass(frozen=True)
class Rule:
    """What must hold for every plugin of a kind.

    says:     the rule, as one sentence.
    measured: how it is measured, and with which tolerance.
    faults:   what known faults it finds (``docs/faults.md``).
    check:    raises Broken where the rule does not hold on a case; any other error of the plugin breaks it too.
    sizes:    what it is tried at, beside the subject's settings.
    unless:   why it does not apply to a subject, from what the subject states; empty where it applies.
    after:    rules without which this one says nothing: it is judged only where they hold.
    """

    kind: Kind
    name: str
    says: str
    measured: str
    check: Callable[[Any, Case], None]
    faults: tuple[str, ...] = ()
    sizes: Sizes = field(default_factory=Sizes)
    unless: Callable[[Any], str] = lambda subject: ""
    after: tuple[str, ...] = ()


def rule(
    kind: Kind,
    name: str,
    *,
    says: str,
    measured: str,
    faults: tuple[str, ...] = (),
    sizes: Sizes | None = None,
    unless: Callable[[Any], str] = lambda subject: "",
    after: tuple[str, ...] = (),
) -> Callable[[Callable[[Any, Case], None]], Callable[[Any, Case], None]]:
    """Register the decorated check as a rule of a kind. Names of a kind must differ."""

    def register(check: Callable[[Any, Case], None]) -> Callable[[Any, Case], None]:
        known = _RULES.setdefault(kind, {})
        if name in known:
            raise ValueError(f"two rules of kind {kind!r} are named {name!r}")
        known[name] = Rule(kind, name, says, measured, check, faults, sizes or Sizes(), unless, after)
        return check

    return register


def rules_of(kind: Kind) -> tuple[Rule, ...]:
    """All rules of a kind, each after those that it comes after; raises ConfigError for a kind without any."""
    _home(kind)
    known = _RULES[kind]
    ordered: dict[str, Rule] = {}

    def place(rule: Rule) -> None:
        for name in rule.after:
            place(known[name])
        ordered.setdefault(rule.name, rule)

    for rule in known.values():
        place(rule)
    return tuple(ordered.values())


def subject_of(kind: Kind) -> type[Subject]:
    """The class whose objects the rules of a kind are given."""
    found: type[Subject] = _home(kind).SUBJECT
    return found


def _home(kind: Kind) -> Any:
    if kind not in HOMES:
        raise ConfigError(
            f"no conformance rules exist for kind {kind!r}; they do for {', '.join(sorted(HOMES))}"
        )
    return importlib.import_module(HOMES[kind])
