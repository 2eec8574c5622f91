"""The engine: cases from small to large, the smallest failure, rules that come after others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from crossbreed.core.conformance import rule as rule_module
from crossbreed.core.conformance.case import Case, Sizes, legal_settings
from crossbreed.core.conformance.rule import Broken, Rule, require, rules_of
from crossbreed.core.conformance.subject import Subject
from crossbreed.core.conformance.suite import check, judge
from crossbreed.core.contracts.space import Choices, Integers
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.host import Registry

GRID = Sizes(
    {"tokens": (1, 2, 5, 9), "split": (0, 1, 4)},
    {"tokens": (2, 9), "split": (1, 4)},
    lambda sizes: sizes["split"] < sizes["tokens"],
)


class Anything(Subject):
    kind = "mixer"


@pytest.fixture
def subject(registry: Registry) -> Subject:
    return Anything(registry, "swiglu")


def made(check: Any, **fields: Any) -> Rule:
    return Rule("mixer", "a rule", "It holds.", "By hand.", check, **fields)


def test_sizes_ascend_and_are_legal_together() -> None:
    assert [tuple(point.values()) for point in GRID.points("suite")] == [(2, 1), (9, 1), (9, 4)]
    assert [tuple(point.values()) for point in GRID.points("full")][:4] == [(1, 0), (2, 0), (2, 1), (5, 0)]
    with pytest.raises(ValueError, match="must ascend"):
        Sizes({"tokens": (3, 1)})
    with pytest.raises(ValueError, match="not among the full ones"):
        Sizes({"tokens": (1, 3)}, {"tokens": (2,)})


def test_a_rule_that_holds_is_tried_on_all_sizes_and_with_drawn_settings_on_the_largest(
    subject: Subject,
) -> None:
    tried: list[Case] = []
    outcome = judge(made(lambda subject, case: tried.append(case), sizes=GRID), subject)
    assert outcome.status == "passed"
    assert outcome.cases == len(tried)
    defaults, *drawn = subject.settings
    sizes = list(GRID.points("suite"))
    assert tried == [Case(defaults, point) for point in sizes] + [Case(other, sizes[-1]) for other in drawn]
    assert drawn


def test_a_failure_is_brought_back_to_the_smallest_declared_size(subject: Subject) -> None:
    def at_most_four(subject: Subject, case: Case) -> None:
        require(case["tokens"] < 5, "too long", tokens=case["tokens"])

    outcome = judge(made(at_most_four, sizes=GRID), subject)
    assert outcome.status == "failed"
    assert outcome.case == Case({}, {"tokens": 5, "split": 0})
    assert outcome.numbers == {"tokens": 5}
    assert str(outcome) == "too long at tokens 5, split 0 (defaults): tokens 5"


def test_a_failure_of_drawn_settings_alone_names_them(subject: Subject) -> None:
    def defaults_only(subject: Subject, case: Case) -> None:
        require(not case.settings, "broken")

    outcome = judge(made(defaults_only, sizes=GRID), subject)
    assert outcome.case is not None
    assert outcome.case.settings == subject.settings[1]
    assert outcome.case.sizes == {"tokens": 1, "split": 0}


def test_any_error_breaks_a_rule_and_is_located(subject: Subject) -> None:
    outcome = judge(made(lambda subject, case: 1 / 0), subject)
    assert outcome.status == "failed"
    assert "raised ZeroDivisionError at" in outcome.why
    assert "test_engine.py" in outcome.why


def test_a_rule_that_does_not_apply_says_why_and_is_not_tried(subject: Subject) -> None:
    def never(subject: Subject, case: Case) -> None:
        raise AssertionError("tried")

    outcome = judge(made(never, unless=lambda subject: "it has none"), subject)
    assert (outcome.status, outcome.why) == ("not_applicable", "it has none")


def test_a_rule_is_not_judged_after_one_that_is_broken(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(subject: Subject, case: Case) -> None:
        raise Broken("broken")

    def fine(subject: Subject, case: Case) -> None:
        pass

    chain = {
        "first": Rule("mixer", "first", "", "", broken),
        "second": Rule("mixer", "second", "", "", fine, after=("first",)),
        "third": Rule("mixer", "third", "", "", fine, after=("second",)),
        "apart": Rule("mixer", "apart", "", "", fine),
    }
    rules_of("mixer")  # Registered before they are replaced.
    monkeypatch.setitem(rule_module._RULES, "mixer", chain)
    assert judge(chain["third"], subject).why == "says nothing until 'first' holds"
    assert {name: outcome.status for name, outcome in subject.outcomes.items()}["first"] == "failed"
    assert judge(chain["apart"], subject).status == "passed"


def test_settings_are_legal_different_and_the_same_each_time() -> None:
    ranges = {"heads": Choices((2, 3, 4)), "groups": Integers(1, 4)}

    def divides(settings: Mapping[str, Any]) -> None:
        if settings["heads"] % settings["groups"]:
            raise ConfigError("groups must divide heads")

    found = legal_settings(ranges, divides, 5)
    assert len(found) == 5
    assert all(settings["heads"] % settings["groups"] == 0 for settings in found)
    assert found == legal_settings(ranges, divides, 5)
    assert len({str(settings) for settings in found}) == 5
    assert legal_settings({}, divides, 5) == ()


def test_names_and_settings_that_do_not_exist_are_bad_input(registry: Registry) -> None:
    with pytest.raises(UnknownName, match="mamba2"):
        check(registry, "mixer", "mamba3")
    with pytest.raises(ConfigError, match="hiden"):
        check(registry, "mixer", "swiglu", extra=[{"hiden": 3}])


def test_every_rule_says_what_it_is_and_how_it_is_measured() -> None:
    for rule in rules_of("mixer"):
        assert rule.says.endswith("."), rule.name
        assert rule.measured.endswith("."), rule.name
        assert rule.name == rule.name.lower().replace(" ", "-"), rule.name
