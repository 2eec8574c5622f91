"""What every plugin states about its settings, whatever its kind."""

from __future__ import annotations

import json
from typing import Any

from crossbreed.core.conformance.case import Case
from crossbreed.core.conformance.rule import Broken, require, rule
from crossbreed.core.conformance.subject import Subject
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.contracts.space import Choices, Integers, Range
from crossbreed.core.errors import ConfigError

UNKNOWN = "no_setting_has_this_name"


def register_settings_rule(kind: Kind) -> None:
    """Register, for a kind, the rule on settings and the ranges that a search draws them from."""

    @rule(
        kind,
        "settings",
        says="Settings are what they say: unknown ones are refused, known ones survive being stored, and every value that a "
        "search may draw is legal.",
        measured="An unknown key must be a ConfigError; settings written as JSON and read again must be equal; the ends of every "
        "declared range must be legal beside the other defaults.",
        faults=("I5", "O8"),
    )
    def settings(subject: Subject, case: Case) -> None:
        made = subject.config(case.settings)
        refused = _refused(subject, {**case.settings, UNKNOWN: 1})
        require(refused, f"the setting {UNKNOWN!r}, which does not exist, is taken without a word")
        stored = json.loads(json.dumps(made.model_dump(mode="json")))
        require(subject.config(stored) == made, f"settings stored as {stored} are read as others")
        if not case.settings:
            _drawn(subject, stored)


def _drawn(subject: Subject, defaults: dict[str, Any]) -> None:
    for name, legal in subject.ranges().items():
        require(name in defaults, f"the range {name!r} is about a setting that does not exist")
        for value in _ends(legal):
            try:
                subject.config({name: value})
            except ConfigError as error:
                raise Broken(
                    f"{name}={value!r} lies in its declared range, but is refused: {error}"
                ) from error


def _ends(legal: Range) -> tuple[Any, ...]:
    if isinstance(legal, Choices):
        return legal.values
    if isinstance(legal, Integers):
        return (legal.values()[0], legal.values()[-1])
    return (legal.low, legal.high)


def _refused(subject: Subject, settings: dict[str, Any]) -> bool:
    try:
        subject.config(settings)
    except ConfigError:
        return True
    return False
