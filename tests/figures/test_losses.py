from __future__ import annotations

import math

import pytest

from crossbreed.core.search.losses import Part
from crossbreed.figures.losses import classes_figure, positions_figure

QUERY = Part("<b>query</b>", 4096, {1: 0.1, 2: 0.2, 3: 0.3})
FILLER = Part("filler", 99, {1: 2.0})
ABSENT = Part("absent", 0, {})


def test_a_class_has_a_dot_with_its_interval_and_one_that_never_stands_has_none() -> None:
    (dots,) = classes_figure([QUERY, FILLER, ABSENT], "loss_nats").data
    assert dots.y == ("&lt;b&gt;query&lt;/b&gt;", "filler")
    assert dots.x == pytest.approx((0.2, 2.0))
    up = dots.error_x.array
    assert up[0] == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-5)
    assert math.isnan(up[1])
    assert "4,096 positions: 0.2 [" in dots.customdata[0][0]


def test_lengths_have_a_line_each_with_gaps_where_nothing_is_labelled() -> None:
    short = [Part(0, 0, {}), Part(1, 8, {1: 0.5})]
    long = [Part(0, 8, {1: 0.5, 2: 0.7}), Part(2, 8, {1: 0.9, 2: 0.9})]
    one, two = positions_figure({1: short, 2: long}, "accuracy").data
    assert (one.x, one.y) == ((0, 1), (None, 0.5))
    assert (two.x, two.y) == ((0, 2), pytest.approx((0.6, 0.9)))
    assert [one.name, two.name] == ["1× the training length", "2× the training length"]
    assert two.customdata[1][0] == "position 2: 0.9, 2 seeds"
    assert one.line.color != two.line.color


def test_the_axis_says_which_mean_it_is() -> None:
    assert positions_figure({}, "loss_nats").layout.yaxis.title.text == "loss, nats/token"
    assert classes_figure([], "accuracy").layout.xaxis.title.text == "accuracy"
