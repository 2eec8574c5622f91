"""Running rules: each on cases from small to large, and on a failure back to the smallest case that fails."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from crossbreed.core.conformance.case import Case
from crossbreed.core.conformance.report import Outcome, Report
from crossbreed.core.conformance.rule import Broken, Rule, rules_of, subject_of
from crossbreed.core.conformance.subject import ProfileName, Subject
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.host import Registry

SMALLER = 100
"""Cases tried, at most, in search of the smallest one that fails."""


def check(
    registry: Registry,
    kind: Kind,
    name: str,
    profile: ProfileName = "suite",
    extra: Sequence[Mapping[str, Any]] = (),
) -> Report:
    """Judge a plugin by all rules of its kind. Raises ConfigError for a name or settings that do not exist."""
    subject = subject_of(kind)(registry, name, profile, extra)
    outcomes = tuple(judge(rule, subject) for rule in rules_of(kind))
    return Report(kind, name, registry.registered(kind, name).owner.source, profile, outcomes)


def judge(rule: Rule, subject: Subject) -> Outcome:
    """The outcome of one rule, and of those it comes after; each is found once for a subject."""
    if rule.name not in subject.outcomes:
        began = time.perf_counter()
        outcome = _judged(rule, subject)
        seconds = time.perf_counter() - began
        subject.outcomes[rule.name] = Outcome(**{**vars(outcome), "seconds": seconds})
    return subject.outcomes[rule.name]


def _judged(rule: Rule, subject: Subject) -> Outcome:
    why = rule.unless(subject)
    if why:
        return Outcome(rule, "not_applicable", why)
    first = _broken_before(rule, subject)
    if first:
        return Outcome(rule, "not_applicable", f"says nothing until {first!r} holds")
    count = 0
    for case in cases(rule, subject):
        count += 1
        broken = attempt(rule, subject, case)
        if broken is not None:
            case, broken = _smallest(rule, subject, case, broken)
            return Outcome(rule, "failed", str(broken), case, broken.numbers, count)
    return Outcome(rule, "passed", cases=count)


def _broken_before(rule: Rule, subject: Subject) -> str:
    """The name of a broken rule that this one, or one it comes after, comes after; empty where all hold."""
    for needed in rules_of(rule.kind):
        if needed.name in rule.after:
            failed = judge(needed, subject).status == "failed"
            first = needed.name if failed else _broken_before(needed, subject)
            if first:
                return first
    return ""


def cases(rule: Rule, subject: Subject, profile: ProfileName | None = None) -> Iterator[Case]:
    """The cases of a rule: for each of the subject's settings the rule's sizes, ascending; of some only the largest."""
    for settings in subject.settings:
        points = list(rule.sizes.points(profile or subject.profile.name))
        for sizes in points[-1:] if profile is None and subject.briefly(settings) else points:
            yield Case(settings, sizes)


def attempt(rule: Rule, subject: Subject, case: Case) -> Broken | None:
    """How the rule is broken on a case, or None where it holds."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rule.check(subject, case)
    except Broken as broken:
        return broken
    except Exception as error:
        # Somebody's plugin may raise anything; it is reported as what broke the rule.
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        return Broken(f"raised {type(error).__name__} at {where}: {error}")
    return None


def _smallest(rule: Rule, subject: Subject, case: Case, broken: Broken) -> tuple[Case, Broken]:
    """The first failing case of the full profile up to this one: fewer settings changed, then smaller sizes."""
    settings = list(subject.settings)
    for smaller in islice(cases(rule, subject, "full"), SMALLER):
        before = settings.index(dict(smaller.settings)) - settings.index(dict(case.settings))
        if before > 0 or (before == 0 and tuple(smaller.sizes.values()) >= tuple(case.sizes.values())):
            break
        found = attempt(rule, subject, smaller)
        if found is not None:
            return smaller, found
    return case, broken
