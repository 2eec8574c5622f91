from __future__ import annotations

from crossbreed.core.search.growth import Growth
from crossbreed.figures.studies import DOTS, thumbnail_figure, trend_figure
from tests.core.search.results import scored

X, Y = "decode_tokens_per_s", "score"


def test_a_thumbnail_joins_the_front_and_takes_dominated_ones_evenly() -> None:
    best = {0: [0.9], 1: [0.5]}
    worse = {n: [0.1] for n in range(2, 2 + 3 * DOTS)}
    speeds = {0: [10.0], 1: [90.0], **{n: [5.0] for n in worse}}
    rest, front = thumbnail_figure(scored({**best, **worse}, speeds), X, Y).data
    assert list(zip(front.x, front.y, strict=True)) == [(10.0, 0.9), (90.0, 0.5)]
    assert len(rest.x) == DOTS


def test_a_trend_shows_every_change_also_a_fall() -> None:
    changes = [Growth(tokens, 1.0, 1, volume, {}) for tokens, volume in ((100, 3.0), (300, 5.0), (400, 4.0))]
    (line,) = trend_figure(changes).data
    assert (line.x, line.y, line.line.shape) == ((100, 300, 400), (3.0, 5.0, 4.0), "hv")
