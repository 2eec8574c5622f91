"""Paired comparison: what seeds have in common is no difference."""

from __future__ import annotations

import numpy as np
import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.search.candidates import Objectives, read
from crossbreed.core.search.pairs import compare, find
from tests.core.search.results import SCORE, row, scored, seed


def test_a_small_difference_is_seen_through_large_common_noise() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, size=5)
    scores = {0: list(0.5 + noise), 1: list(0.52 + noise + [0.001, -0.001, 0.002, 0.0, -0.002])}
    found = scored(scores)
    (result,) = compare(found, SCORE)
    assert result.paired is not None
    assert result.paired.interval is not None
    assert result.paired.mean == pytest.approx(-0.02)
    assert result.paired.interval.high < -0.01
    assert result.better == 1
    assert result.sentence == "#1 is better than #0 over 5 shared seeds."
    # Unpaired, the two intervals overlap almost wholly.
    a, b = (c.intervals["score"] for c in found)
    assert a is not None
    assert b is not None
    assert a.low < b.low < a.high


def test_the_direction_says_who_is_better() -> None:
    rows = [row(n, [seed(i, 0.1 * n + 0.001 * i * (n + 1)) for i in range(3)]) for n in range(2)]
    objectives = Objectives({"score": "min"})
    (result,) = compare(read(rows, objectives), objectives)
    assert result.better == 0


def test_only_shared_seeds_count_and_fewer_than_three_say_nothing() -> None:
    first = row(0, [seed(i, 0.9) for i in range(3)])
    second = row(1, [seed(i, 0.1) for i in (1, 2, 5)])
    (result,) = compare(read([first, second], SCORE), SCORE)
    assert result.seeds == (1, 2)
    assert result.paired is not None
    assert result.paired.interval is None
    assert result.better is None
    assert "2 shared seeds; an interval needs 3" in result.sentence
    (result,) = compare(read([first, row(1, [seed(7, 0.1)])], SCORE), SCORE)
    assert result.paired is None
    assert "share no seed" in result.sentence


def test_many_pairs_are_corrected_for_their_number() -> None:
    """In studies of ten equal candidates, any of the 45 pairs is called different in at most about 5%."""
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(100):
        scores = {n: list(random.normal(0.5, 0.02, size=4)) for n in range(10)}
        wrong += any(c.better is not None for c in compare(scored(scores), SCORE))
    assert wrong <= 10


@pytest.mark.parametrize(
    "text", ["1", "#1", "00000000000000000000000000000000000000000000000000000000000000ab"]
)
def test_candidates_are_named_by_number_or_hash(text: str) -> None:
    found = scored({0: [0.5], 1: [0.6], 0xAB: [0.7]})
    assert find(found, text).row.number == (0xAB if "ab" in text else 1)


@pytest.mark.parametrize(
    ("text", "why"), [("7", "is not in this study"), ("0000", "fits several"), ("x", "is not")]
)
def test_a_candidate_that_is_not_clear_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        find(scored({0: [0.5], 1: [0.6]}), text)
