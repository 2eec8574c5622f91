"""The page of counters says what its committed record says, and the record what is counted today."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import DOCS, generator


@pytest.fixture(scope="module")
def counters() -> ModuleType:
    return generator("three_counters")


def test_the_committed_page_is_what_the_record_gives(
    counters: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / counters.PAGE).read_text()
    assert counters.text() == page
    changed = tmp_path / "record.json"
    changed.write_text(counters.RECORD.read_text().replace("5271696", "5271697"))
    monkeypatch.setattr(counters, "RECORD", changed)
    assert counters.text() != page


def test_the_record_is_what_is_counted_today(counters: ModuleType) -> None:
    import json

    # The shorter length alone: fake tensors walk every chunk.
    kept, found = json.loads(counters.RECORD.read_text()), counters.measure(counters.LENGTHS[:1])
    assert found["parameters"] == kept["parameters"]
    for row, other in zip(found["rows"], kept["rows"], strict=False):
        # PyTorch's own counter may learn or forget operations with its version; the rest is ours.
        ours = {name: value for name, value in row.items() if not name.startswith("pytorch")}
        assert ours == pytest.approx({name: other[name] for name in ours})
        assert row["dispatched_forward"] == pytest.approx(row["ledger_executed_forward"], rel=0.01)
        assert row["dispatched_training"] == pytest.approx(row["ledger_executed_training"], rel=0.01)
