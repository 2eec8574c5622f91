"""Tables of where the loss comes from, from what a real evaluation's record holds."""

from __future__ import annotations

import math

from crossbreed.core.search.losses import by_class, by_position
from crossbreed.storage.rows import BreakdownRow

BREAKDOWN = {
    "version": 1,
    "classes": [
        {"class": "query", "labelled": 4, "right": 3, "loss_nats": 2.0},
        {"class": "filler", "labelled": 0, "right": 0, "loss_nats": 0.0},
    ],
    "positions": {"width": 2, "labelled": [0, 4], "right": [0, 3], "loss_nats": [0.0, 2.0]},
}
FOUND = [BreakdownRow(7, 1, "own", 640, BREAKDOWN)]


def test_classes_have_means_of_their_own_and_none_where_nothing_stands() -> None:
    table = by_class(FOUND)
    assert list(table.columns) == [
        "trial",
        "seed",
        "point",
        "tokens",
        "class",
        "labelled",
        "accuracy",
        "loss_nats",
    ]
    assert table.iloc[0].tolist() == [7, 1, "own", 640, "query", 4, 0.75, 0.5]
    assert table.iloc[1].tolist()[4:6] == ["filler", 0]
    assert all(math.isnan(value) for value in table.iloc[1][["accuracy", "loss_nats"]])


def test_bins_are_named_by_their_first_position() -> None:
    table = by_position(FOUND)
    assert table["position"].tolist() == [0, 2]
    assert table.iloc[1][["labelled", "accuracy", "loss_nats"]].tolist() == [4, 0.75, 0.5]


def test_a_study_without_breakdowns_has_empty_tables_with_their_columns() -> None:
    assert len(by_class([])) == len(by_position([])) == 0
    assert "class" in by_class([]).columns
