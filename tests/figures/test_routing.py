"""Figures of router analytics draw the stored numbers, and leave out what was never asked."""

from __future__ import annotations

import pytest

from crossbreed.figures.routing import depth_figure, diversity_figure, text_figure, threshold_figure

ENTROPY = {
    "bins": [
        {"low": 0.1, "high": 0.2, "asked": 6, "shares": [1.0, 0.0], "mean_nats": 1.0},
        {"low": 0.3, "high": 0.8, "asked": 2, "shares": [0.5, 0.5], "mean_nats": None},
    ]
}


def test_the_rate_of_a_threshold_is_the_share_of_tokens_above_it() -> None:
    (line,) = threshold_figure(ENTROPY).data
    assert line.x == (0.1, 0.3, 0.8)
    assert line.y == pytest.approx((1.0, 0.25, 0.0))


def test_words_are_coloured_by_choice_or_entropy_and_not_where_nothing_was_asked() -> None:
    found = {
        "length": 3,
        "words": ["<i>", "b", "c", "d", "e", "f"],
        "classes": ["x"],
        "class": [0] * 6,
        "loss_nats": [None, 0.5, None, None, None, 2.0],
    }
    site = {
        "choices": ["skip", "run"],
        "choice": [0, 1, 1, 0, 0, 1],
        "asked": [True, True, False, True, True, True],
        "entropy": [0.1, 0.9, 0.9, 0.2, 0.3, 0.7],
    }
    (chosen,) = text_figure(found, site, by_entropy=False).data
    assert [list(row) for row in chosen.z] == [[0.0, 1.0, None], [0.0, 0.0, 1.0]]
    assert chosen.text[0][0] == "&lt;i&gt;"
    assert (
        chosen.customdata[1][2] == "<b>f</b>, x<br>row 1, position 2: run<br>entropy 0.700<br>loss 2.000 nats"
    )
    assert "not asked" in chosen.customdata[0][2]
    (read,) = text_figure(found, site, by_entropy=True).data
    assert [list(row) for row in read.z] == [[0.1, 0.9, None], [0.2, 0.3, 0.7]]


def test_depth_maps_are_of_one_head_or_their_mean_and_empty_above_the_diagonal() -> None:
    mixer = {"sites": ["0.0.0.0", "0.0.1.0"], "weights": [[[1.0], [0.2, 0.8]], [[1.0], [0.4, 0.6]]]}
    (mean,) = depth_figure(mixer, None).data
    assert [list(row) for row in mean.z] == [[1.0, None], pytest.approx([0.3, 0.7])]
    (first,) = depth_figure(mixer, 0).data
    assert list(first.z[1]) == [0.2, 0.8]


def test_depths_of_pools_are_whole_numbers_each_once() -> None:
    pool = {"sites": ["0.0.0.1", "0.0.1.1"], "part": "", "experts": 4, "diversity": [3.8, 3.5]}
    assert diversity_figure([pool]).layout.xaxis.dtick == 1
    deep = pool | {"sites": ["0"] * 30, "diversity": [3.0] * 30}
    assert diversity_figure([pool, deep]).layout.xaxis.dtick == 3
