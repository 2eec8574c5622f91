from __future__ import annotations

import math
from dataclasses import replace

import pytest

from crossbreed.core.search.candidates import Candidate, Objectives, read
from crossbreed.core.search.layers import Layer
from crossbreed.figures.front import (
    LARGEST,
    MOST_DOMINATED,
    SMALLEST,
    Marks,
    drawable,
    front_figure,
    with_costs,
)
from crossbreed.figures.layers import layers_figure
from crossbreed.figures.palette import styles
from crossbreed.storage.rows import CandidateRow, EvaluationRow, MeasurementRow, PointRow, SeedRow

X, Y = "decode_tokens_per_s", "score"
OBJECTIVES = Objectives({Y: "max", X: "max"})


def _row(
    number: int, scores: list[float], speeds: list[float], state: str = "done", tokens: int = 32
) -> CandidateRow:
    seeds = []
    for seed, (score, speed) in enumerate(zip(scores, speeds, strict=True)):
        measured = MeasurementRow(
            X, "tokens/s", "decode", 1, tokens, "float32", "cpu", "best", False, speed, speed, speed, 7, True, 1, {}
        )  # fmt: skip
        own = PointRow("own", None, None, None, None, (measured,), (EvaluationRow(tokens, {}, score, 8, 0),))
        role = "report" if len(scores) > 1 else "tune"
        seeds.append(SeedRow(number * 100 + seed, seed, state, None, 1, {}, {"own": own}, role))
    return CandidateRow(
        number, number, "f" * 64, f"family {number % 3}", "start", {}, state, None, None, None, tuple(seeds)
    )


def _candidates(*rows: CandidateRow) -> list[Candidate]:
    return read(rows, OBJECTIVES)


def test_markers_and_bars_are_the_stored_means_and_interval_ends() -> None:
    found = _candidates(_row(0, [0.5, 0.6, 0.7], [100.0, 110.0, 120.0]), _row(1, [0.4], [50.0]))
    figure = front_figure(found, ["family 0", "family 1"], X, Y, log_x=True, line=True, selected=1)
    by_number = {t.customdata[0][0]: t for t in figure.data if t.customdata is not None}
    assert by_number[0].x[0] == pytest.approx(110.0)
    interval = found[0].intervals[Y]
    assert interval is not None
    assert by_number[0].y[0] + by_number[0].error_y.array[0] == pytest.approx(interval.high)
    assert by_number[0].y[0] - by_number[0].error_y.arrayminus[0] == pytest.approx(interval.low)
    assert not by_number[1].error_x.visible
    assert by_number[1].marker.opacity < by_number[0].marker.opacity
    ring = next(t for t in figure.data if t.name == "selected")
    assert (ring.x[0], ring.y[0], ring.hoverinfo) == (50.0, 0.4, "skip")


def test_a_speed_of_another_key_is_never_drawn() -> None:
    found = _candidates(_row(0, [0.5], [100.0]), _row(1, [0.6], [90.0]), _row(2, [0.9], [900.0], tokens=64))
    shown, hidden = drawable(found, OBJECTIVES, X, Y, off_budget=False)
    assert [c.row.number for c in shown] == [0, 1]
    assert hidden == {"done but not measured yet": 1}


def test_what_is_hidden_is_counted_by_reason_and_off_budget_can_be_shown() -> None:
    found = _candidates(
        _row(0, [0.5], [100.0]),
        _row(1, [0.9], [300.0], "off_budget"),
        _row(2, [], [], "infeasible"),
        _row(3, [], [], "failed"),
        _row(4, [], [], "failed"),
    )
    shown, hidden = drawable(found, OBJECTIVES, X, Y, off_budget=False)
    assert [c.row.number for c in shown] == [0]
    assert hidden == {"off budget": 1, "infeasible": 1, "failed": 2}
    shown, hidden = drawable(found, OBJECTIVES, X, Y, off_budget=True)
    assert [c.row.number for c in shown] == [0, 1]
    assert [c.on_front for c in shown] == [True, False]


def test_of_very_many_candidates_the_front_and_those_nearest_to_it_are_drawn() -> None:
    count = MOST_DOMINATED + 150
    # A ladder of ever worse candidates: each is dominated by all before it.
    rows = [_row(i, [1 - i / 1000], [1000.0 - i]) for i in range(count)]
    shown, hidden = drawable(_candidates(*rows[::-1]), OBJECTIVES, X, Y, off_budget=False)
    assert {c.row.number for c in shown} == set(range(MOST_DOMINATED + 1))
    assert hidden == {"dominated and far from the front": 149}


def test_a_log_axis_holds_every_mean_even_where_an_interval_reaches_below_zero() -> None:
    found = _candidates(_row(0, [0.5] * 3, [1.0, 100.0, 1000.0]), _row(1, [0.6], [90.0]))
    interval = found[0].intervals[X]
    assert interval is not None
    assert interval.low < 0
    figure = front_figure(found, ["family 0", "family 1"], X, Y, log_x=True, line=True, selected=None)
    low, high = figure.layout.xaxis.range
    assert low < math.log10(90)
    assert math.log10(interval.high) < high
    assert figure.layout.yaxis.type is None
    upright = front_figure(
        found, ["family 0", "family 1"], Y, X, log_x=False, log_y=True, line=True, selected=None
    )
    assert upright.layout.yaxis.range == (low, high)
    assert upright.layout.xaxis.type is None


def test_of_the_dominated_only_the_nearest_to_the_front_are_drawn_when_few_are_asked_for() -> None:
    found = _candidates(*(_row(i, [1 - i / 10], [1000.0 - i]) for i in range(6)))
    for most, numbers, reason in ((2, [0, 1, 2], "dominated and far from the front"), (0, [0], "dominated")):
        shown, hidden = drawable(found, OBJECTIVES, X, Y, off_budget=False, most=most)
        assert [c.row.number for c in shown] == numbers
        assert hidden == {reason: 6 - len(numbers)}


@pytest.mark.parametrize("log", [False, True])
def test_a_chart_of_layers_moves_no_stored_value(log: bool) -> None:
    """Two studies, one of a hundred times the speed: every marker stands at the mean that is stored, in its own units."""
    slow = _candidates(_row(0, [0.5, 0.7, 0.9], [100.0, 110.0, 120.0]), _row(1, [0.4], [150.0]))
    fast = _candidates(_row(0, [0.55], [9000.0]), _row(2, [0.2], [16000.0]))
    layers = [Layer("slow", tuple(slow), 1.0), Layer("fast", tuple(fast), None, study="fast")]
    figure = layers_figure(layers, X, Y, log_x=log, line=True, selected=0)
    drawn = [place for t in figure.data if t.customdata is not None for place in zip(t.x, t.y, strict=True)]
    means = [(c.means[X], c.means[Y]) for c in (*slow, *fast)]
    assert sorted(drawn) == sorted(means)
    (ring,) = [t for t in figure.data if t.name == "selected"]
    assert (ring.x[0], ring.y[0]) == pytest.approx((slow[0].means[X], slow[0].means[Y]))
    assert [t.name for t in figure.data if t.showlegend is None] == ["slow, volume 1", "fast"]


def test_sizes_of_several_fronts_are_on_one_scale() -> None:
    small, large = (
        replace(c, row=replace(c.row, ledger={"memory_bytes": memory}))
        for c, memory in zip(
            _candidates(_row(0, [0.5], [100.0]), _row(1, [0.4], [200.0])), (100.0, 400.0), strict=True
        )
    )
    layers = [Layer("one", (small,), None), Layer("other", (large,), None, study="other")]
    figure = layers_figure(layers, X, Y, log_x=False, line=False, selected=None, marks=Marks("memory_bytes"))
    one, other = [t.marker.size[0] for t in figure.data if t.customdata is not None]
    assert other == LARGEST
    assert one - SMALLEST == pytest.approx((LARGEST - SMALLEST) / 2)


def test_families_keep_their_style_while_a_study_grows() -> None:
    before = styles(["a", "b", "a"])
    after = styles(["a", "b", "a", "c"])
    assert {k: after[k] for k in before} == before
    assert len(set(styles(map(str, range(56))).values())) == 56


def test_sizes_stand_for_a_cost_and_opacity_for_certainty() -> None:
    found = [
        replace(c, row=replace(c.row, ledger={"memory_bytes": memory}))
        for c, memory in zip(
            _candidates(_row(0, [0.5], [100.0]), _row(3, [0.4], [200.0])), (100.0, 400.0), strict=True
        )
    ]
    marks = Marks("memory_bytes", {(0, "own"): 0.5})
    figure = front_figure(found, ["family 0"], X, Y, log_x=False, line=True, selected=None, marks=marks)
    (markers,) = [t for t in figure.data if t.customdata is not None]
    small, large = markers.marker.size
    assert large == LARGEST
    assert small - SMALLEST == pytest.approx((LARGEST - SMALLEST) / 2)  # a quarter of the area
    assert [colour.rsplit(",", 1)[1] for colour in markers.marker.color] == ["0.56)", "1.0)"]


def test_operating_points_of_one_model_are_joined_and_named() -> None:
    (own,) = _candidates(_row(0, [0.5], [100.0]))
    faster = replace(own, point="threshold:0.1", means={X: 150.0, Y: 0.4})
    figure = front_figure([faster, own], ["family 0"], X, Y, log_x=False, line=False, selected=None)
    (joined,) = [t for t in figure.data if t.name == "operating points"]
    assert list(zip(joined.x, joined.y, strict=True)) == [(100.0, 0.5), (150.0, 0.4)]
    hints = [hint for t in figure.data if t.customdata is not None for _, hint in t.customdata]
    assert sum("at threshold:0.1" in hint for hint in hints) == 1


def test_a_cost_may_be_an_axis_beside_the_objectives() -> None:
    (candidate,) = _candidates(_row(0, [0.5], [100.0]))
    candidate = replace(candidate, row=replace(candidate.row, ledger={"parameters": 7}))
    (shown,) = with_costs([candidate], ("parameters", Y))
    assert (shown.means["parameters"], shown.intervals["parameters"], shown.means[Y]) == (7.0, None, 0.5)
