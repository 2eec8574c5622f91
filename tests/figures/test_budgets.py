"""Figures of budgets: what was predicted stands against what was measured, number by number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossbreed.core.search.candidates import read
from crossbreed.dashboard.views.budgets import _speeds
from crossbreed.figures.budgets import agreement_figure
from tests.figures.test_front import OBJECTIVES, _row


def _predicting(number: int, device: str, seconds: float) -> object:
    prediction = {"device": device, "seconds_per_token": {"decode": seconds}}
    return replace(_row(number, [0.5], [100.0]), ledger={"prediction": prediction})


def test_a_prediction_stands_against_the_speed_measured_on_its_own_device() -> None:
    found = read(
        [_predicting(0, "cpu", 0.008), _predicting(1, "gpu", 0.001), _row(2, [0.5], [90.0])], OBJECTIVES
    )
    # Candidate 1 was timed on another device than was predicted, and of candidate 2 nothing was.
    assert _speeds(found, "decode") == [(0, pytest.approx(125.0), pytest.approx(100.0))]
    assert _speeds(found, "prefill") == []


def test_markers_of_agreement_are_the_numbers_given() -> None:
    points = [(0, 125.0, 100.0), (4, 900.0, 850.0)]
    figure = agreement_figure(points, "decode speed", "tokens/s")
    (markers,) = [t for t in figure.data if t.mode == "markers"]
    assert list(zip(markers.x, markers.y, strict=True)) == [(125.0, 100.0), (900.0, 850.0)]
    assert figure.layout.xaxis.title.text == "predicted decode speed, tokens/s"
    assert figure.layout.yaxis.title.text == "measured decode speed, tokens/s"
