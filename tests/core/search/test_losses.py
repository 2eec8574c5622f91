"""Tables of where the loss comes from, from what a real evaluation's record holds."""

from __future__ import annotations

import math

from crossbreed.core.search.losses import Part, along, by_class, by_position, classes
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


def test_a_loss_that_was_not_finite_is_missing_and_its_accuracy_stays() -> None:
    query = {**BREAKDOWN["classes"][0], "loss_nats": None}
    found = [BreakdownRow(7, 1, "own", 640, {**BREAKDOWN, "classes": [query]})]
    table = by_class(found)
    assert table.iloc[0]["accuracy"] == 0.75
    assert math.isnan(table.iloc[0]["loss_nats"])
    assert classes(found, "loss_nats") == [Part("query", 4, {})]


def test_classes_are_gathered_over_runs_at_the_training_length_from_the_last_evaluation() -> None:
    earlier, later = ({**BREAKDOWN["classes"][0], "right": right} for right in (1, 2))
    found = [
        BreakdownRow(7, 1, "own", 320, {**BREAKDOWN, "classes": [earlier]}),
        BreakdownRow(7, 1, "own", 640, {**BREAKDOWN, "classes": [later]}),
        BreakdownRow(7, 1, "length:2", 640, BREAKDOWN),
        BreakdownRow(7, 2, "own", 640, BREAKDOWN),
    ]
    query, filler = classes(found, "accuracy")
    assert query == Part("query", 4, {1: 0.5, 2: 0.75})
    assert query.mean == 0.625
    assert filler == Part("filler", 0, {})


def test_positions_are_gathered_by_length_and_not_at_forced_decisions() -> None:
    points = ("own", "length:4", "forced:1")
    found = along([BreakdownRow(7, 1, point, 640, BREAKDOWN) for point in points], "loss_nats")
    assert found == {times: [Part(0, 0, {}), Part(2, 4, {1: 0.5})] for times in (1, 4)}
