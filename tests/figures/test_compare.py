"""What figures of comparisons draw is what statistics say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crossbreed.core.search.genes import Effect
from crossbreed.core.search.pairs import Comparison
from crossbreed.core.search.statistics import Interval, Paired
from crossbreed.dashboard.tables import differing_fields
from crossbreed.figures.compare import (
    ABSENT,
    BETTER,
    WORSE,
    bars_figure,
    effects_figure,
    pairs_figure,
    quantity,
)
from crossbreed.figures.palette import COLOURS, NEUTRAL
from tests.core.search.results import scored

SURE = Paired(4, 0.2, Interval(0.2, 0.1, 0.3), 0.001)
FEW = Paired(2, -0.1, None, None)


def test_a_difference_has_its_interval_and_the_colour_of_its_verdict() -> None:
    pairs = [
        Comparison("score", "max", 0, 1, (1, 2, 3, 4), SURE, 0.003),
        Comparison("score", "min", 0, 2, (1, 2, 3, 4), SURE, 0.003),
        Comparison("score", "max", 1, 2, (1, 2, 3, 4), SURE, 0.3),
        Comparison("score", "max", 1, 3, (1, 2), FEW, None),
        Comparison("score", "max", 2, 3, (), None, None),
    ]
    better, worse, untold, few = pairs_figure(pairs).data
    assert [t.marker.color for t in (better, worse, untold, few)] == [BETTER, WORSE, NEUTRAL, NEUTRAL]
    assert (better.x[0], better.error_x.array[0]) == (0.2, pytest.approx(0.1))
    assert few.marker.symbol == "circle-open"
    assert "show no difference" in untold.customdata[0][0]


def test_effects_of_genes_show_names_as_text_and_are_coloured_when_sure() -> None:
    effects = [Effect("<b>gate</b>", "none", "learned", "score", SURE, p) for p in (0.01, 0.2)]
    sure, unsure = effects_figure(effects).data
    assert (sure.marker.color, unsure.marker.color) == (COLOURS[0], NEUTRAL)
    assert sure.y[0] == "&lt;b&gt;gate&lt;/b&gt;: none → learned"


def test_fields_that_differ_come_with_names_of_parts_first() -> None:
    def genome(mixer: str, **params: int) -> dict:
        return {"d_model": 8, "stages": [{"blocks": [{"sublayers": [{"mixer": mixer, "params": params}]}]}]}

    table, alike = differing_fields(
        {3: genome("attention", heads=2, window=4), 5: genome("mamba2", heads=2, state=1)}
    )
    assert alike == 2  # d_model and heads
    assert table.to_dict("list") == {
        "field": ["0.0.0 mixer", "0.0.0 state", "0.0.0 window"],
        "#3": ["attention", "–", "4"],
        "#5": ["mamba2", "1", "–"],
    }


def test_a_cost_that_is_an_objective_is_drawn_at_realised_rates() -> None:
    (candidate,) = scored({0: [0.5]})
    candidate = replace(
        candidate, row=replace(candidate.row, ledger={"parameters": 7, "decode_flops_per_token": 60.0})
    )
    assert quantity(candidate, "decode_flops_per_token") == 60.0
    trained = replace(candidate, means={**candidate.means, "decode_flops_per_token": 170.0})
    assert quantity(trained, "decode_flops_per_token") == 170.0
    assert quantity(trained, "parameters") == 7.0
    assert quantity(trained, "memory_bytes") is None


def test_a_candidate_without_a_value_keeps_its_line_and_the_line_says_so() -> None:
    known, unknown = scored({0: [0.5], 1: []})
    figure = bars_figure([known, unknown], "score")
    assert figure.data[0].y == ("#0", "#1")
    (said,) = figure.layout.annotations
    assert (said.y, said.text) == ("#1", ABSENT)
