"""The rules of all kinds but mixers have teeth: each broken plugin fails the one rule that names its fault, and passes put right."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.core.conformance.rule import rules_of
from crossbreed.core.contracts.parts import Kind
from tests.conformance.reverting import broken, failures, judged, mended, rule_broken

FOLDERS: dict[str, Kind] = {
    "routers": "router",
    "depth": "depth",
    "costs": "cost",
    "tasks": "task",
    "spaces": "space",
}
FILES = [(kind, path) for folder, kind in FOLDERS.items() for path in broken(folder)]
ONLY_THE_MODEL = {"depth": {"halting"}}
"""Rules that a plugin cannot break alone; ``test_mutated_parts`` breaks them."""


@pytest.mark.parametrize(("kind", "path"), FILES, ids=[f"{kind}-{path.stem}" for kind, path in FILES])
def test_a_broken_part_fails_only_the_rule_that_names_it_and_passes_when_put_right(
    kind: Kind, path: Path
) -> None:
    report, rule = judged(path, path.read_text(), kind), rule_broken(path)
    found = failures(report)
    assert list(found) == [rule], found
    right = mended(path, kind, report)
    assert "failed" not in right.values(), right


@pytest.mark.parametrize("kind", FOLDERS.values())
def test_every_rule_has_a_part_that_breaks_it(kind: Kind) -> None:
    caught = {rule_broken(path) for of, path in FILES if of == kind}
    assert caught == {rule.name for rule in rules_of(kind)} - ONLY_THE_MODEL.get(kind, set())
