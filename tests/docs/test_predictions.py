"""Recorded times are held against what the cost models predict today."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest

from crossbreed.core.host import Registry
from tests.docs.pages import DOCS, generator

RECORDS = sorted((DOCS / "_records").glob("predictions_*.json"))


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return generator("predictions")


@pytest.mark.parametrize("record", RECORDS, ids=lambda file: file.stem)
def test_predictions_of_recorded_times_are_as_good_as_the_page_says(
    registry: Registry, page: ModuleType, record: Path
) -> None:
    data = json.loads(record.read_text())
    rows = page.compared(data, registry)
    assert len({r.name for r in rows if r.held_out}) >= 6
    # A bound that time undercuts would be none.
    assert max(r.roofline / r.measured for r in rows) <= 1.0
    held = [r for r in rows if r.held_out]
    answered = [abs(r.fitted / r.measured - 1) for r in held if r.fitted is not None]
    assert len(answered) >= 0.8 * len(held)
    # What the fit states of itself is what came out on architectures that it did not see, about.
    assert statistics.median(answered) < 0.25
    for key in {r.key for r in rows}:
        errors = [abs(r.fitted / r.measured - 1) for r in held if r.key == key and r.fitted is not None]
        own = next(r.own_error for r in rows if r.key == key and r.own_error is not None)
        assert statistics.median(errors) < 2 * own
