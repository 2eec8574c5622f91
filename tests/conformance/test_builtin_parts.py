"""The built-in routers, depth policies, cost models, tasks and search spaces keep the rules of their kind."""

from __future__ import annotations

import time
from typing import Any

import pytest

from crossbreed.core.conformance.report import Report
from crossbreed.core.conformance.suite import check
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.host import Host, Registry

KINDS: tuple[Kind, ...] = ("router", "depth", "cost", "task", "space")
PARTS = [(kind, name) for kind in KINDS for name in Host.load(third_party=False).names(kind)]


def timed(registry: Registry, kind: Kind, name: str, profile: Any) -> tuple[Report, float]:
    """The report and the seconds of one core; what the first check of a process loads does not count."""
    check(registry, "mixer", "swiglu")
    began = time.process_time()
    return check(registry, kind, name, profile), time.process_time() - began


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_a_builtin_keeps_the_rules(registry: Registry, kind: Kind, name: str) -> None:
    report = check(registry, kind, name, "suite")
    assert report.passed, "\n".join(f"{o.rule.name}: {o}" for o in report.failures)
    assert any(outcome.status == "passed" for outcome in report.outcomes)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_a_builtin_keeps_the_rules_in_the_full_profile(registry: Registry, kind: Kind, name: str) -> None:
    report, seconds = timed(registry, kind, name, "full")
    assert report.passed, "\n".join(f"{o.rule.name}: {o}" for o in report.failures)
    assert seconds < 60


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_a_builtin_keeps_the_rules_of_the_suite_profile_in_five_seconds(
    registry: Registry, kind: Kind, name: str
) -> None:
    assert timed(registry, kind, name, "suite")[1] < 5
