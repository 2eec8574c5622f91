"""The page of known faults names tests that exist, and lists every fault that a rule says it finds."""

from __future__ import annotations

from crossbreed.core.conformance.rule import HOMES, rules_of
from tests.docs.pages import DOCS, generator

PAGE = generator("faults")
FAULTS = {name: fault for faults in PAGE.SECTIONS.values() for name, fault in faults.items()}


def test_every_fault_that_a_rule_finds_is_listed() -> None:
    said = {fault for kind in HOMES for rule in rules_of(kind) for fault in rule.faults}
    assert len(said) > 20
    assert said <= FAULTS.keys(), sorted(said - FAULTS.keys())


def test_every_fault_is_found_by_a_rule_or_a_test() -> None:
    for name, fault in FAULTS.items():
        assert PAGE.found_by_rules(name) or fault.tests, f"nothing finds {name}"


def test_every_test_that_is_named_exists() -> None:
    named = [test for fault in FAULTS.values() for test in fault.tests]
    assert len(named) > 10
    for path in named:
        file, _, test = path.partition("::")
        text = (DOCS.parent / file).read_text()
        assert not test or f"def {test}(" in text, path
