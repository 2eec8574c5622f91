"""The rules of mixers have teeth: each broken mixer fails the one rule that names its fault, and passes with its line right."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.core.conformance.rule import rules_of
from tests.conformance.reverting import broken, failures, judged, mended, rule_broken

FILES = broken("mixers")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_mixer_fails_only_the_rule_that_names_it_and_passes_when_put_right(path: Path) -> None:
    report, rule = judged(path, path.read_text(), "mixer"), rule_broken(path)
    found = failures(report)
    assert list(found) == [rule], found
    right = mended(path, "mixer", report)
    assert "failed" not in right.values(), right


def test_every_rule_has_a_mixer_that_breaks_it() -> None:
    assert len(FILES) >= 16
    assert {rule_broken(path) for path in FILES} == {rule.name for rule in rules_of("mixer")}
