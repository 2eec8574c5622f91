"""Mixers that are right pass: all built-ins in little time, and unusual ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from crossbreed.core.conformance.report import Report
from crossbreed.core.conformance.suite import check
from crossbreed.core.contracts.mixer import MixerDescriptor
from crossbreed.core.host import Host, Owner, Registered, Registry
from tests.conformance import small
from tests.conformance.reverting import failures
from tests.plugins.mixers.helpers import ALL

MIXERS = Host.load(third_party=False).names("mixer")
SEVERAL = {name: [params for of, params in ALL.values() if of == name] for name in MIXERS}
"""Settings that a search does not draw: readers, routed projections, convolutions."""


def timed(registry: Registry, name: str, profile: Any, extra: Any = ()) -> tuple[Report, float]:
    """The report and the seconds of one core; what the first check of a process loads does not count."""
    check(registry, "mixer", "swiglu")
    began = time.process_time()
    return check(registry, "mixer", name, profile, extra), time.process_time() - began


@pytest.mark.parametrize("name", MIXERS)
def test_a_builtin_passes_the_suite_profile(registry: Registry, name: str) -> None:
    assert failures(check(registry, "mixer", name, "suite", ())) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_the_suite_profile_takes_five_seconds_of_one_core(registry: Registry, name: str) -> None:
    _, seconds = timed(registry, name, "suite")
    assert seconds < 5


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_a_builtin_passes_the_full_profile_in_a_minute(registry: Registry, name: str) -> None:
    report, seconds = timed(registry, name, "full")
    assert failures(report) == {}
    assert seconds < 60


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXERS)
def test_a_builtin_passes_with_settings_that_no_search_draws(registry: Registry, name: str) -> None:
    assert failures(check(registry, "mixer", name, "suite", SEVERAL[name])) == {}


UNUSUAL: dict[str, Callable[[], list[MixerDescriptor]]] = {
    "a cumulative sum with a running normaliser": lambda: small.offered(small.RunningMean),
    "no state": lambda: small.offered(small.Pointwise, "channel"),
    "a state of D x D": lambda: small.offered(small.Memory),
    "a cache without documents": lambda: small.offered(small.Attention, packing=False),
    "dropout": lambda: small.offered(small.Dropout, "channel", same_in_training=False, deterministic=False),
    "a gradient one step late": lambda: small.offered(small.Late, "channel", gradient_steps=2),
    "a short convolution": lambda: small.offered(small.Convolution),
    "one dtype": lambda: small.offered(small.Decay, dtypes=("float32",)),
}


def alone(descriptor: MixerDescriptor) -> Registry:
    registry = Registry()
    registry.entries["mixer"][descriptor.name] = Registered(descriptor, Owner("test", "test", "test"))
    return registry


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_mixer_that_is_right_passes(name: str) -> None:
    (descriptor,) = UNUSUAL[name]()
    assert failures(check(alone(descriptor), "mixer", descriptor.name)) == {}


def test_what_does_not_apply_follows_from_what_is_stated() -> None:
    (descriptor,) = small.offered(
        small.Dropout, "channel", same_in_training=False, deterministic=False, packing=False
    )
    report = check(alone(descriptor), "mixer", descriptor.name)
    why = {
        outcome.rule.name: outcome.why for outcome in report.outcomes if outcome.status == "not_applicable"
    }
    assert set(why) == {
        "repeatable",
        "same-in-training",
        "documents",
        "skips",
        "head-sizes",
        "state-structure",
        "backends",
        "reader",
    }
    assert "same_in_training=False" in why["same-in-training"]
    assert "packing=False" in why["documents"]


def test_an_undeclared_gradient_one_step_late_is_found() -> None:
    (descriptor,) = small.offered(small.Late, "channel")
    found = failures(check(alone(descriptor), "mixer", descriptor.name))
    assert list(found) == ["gradients"]
    assert "inner_D" in found["gradients"]
