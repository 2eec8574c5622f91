"""Measured training peaks are held to what the ledger predicts today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossbreed.core.host import Registry
from crossbreed.core.ledger import Shape
from crossbreed.presets import presets

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "record", sorted((ROOT / "docs" / "_records").glob("training_peak_*.json")), ids=lambda f: f.stem
)
def test_measured_training_peaks_are_predicted_within_15_percent(registry: Registry, record: Path) -> None:
    data = json.loads(record.read_text())
    shape = Shape(data["shape"]["batch"], data["shape"]["tokens"], data["shape"]["dtype"])
    costs = registry.factory("cost", "analytic")(None, registry)
    for row in data["rows"]:
        ledger = costs.estimate(registry.canonical(presets()[row["preset"]].build()), shape)
        assert ledger.training_peak_bytes == pytest.approx(row["measured_bytes"], rel=0.15), row["preset"]
        assert row["predicted_bytes"] == pytest.approx(ledger.training_peak_bytes, rel=0.01), row["preset"]
