"""Probability of standing on the front: what seeds leave open, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crossbreed.core.search import membership
from crossbreed.core.search.candidates import Candidate, Objectives, read
from tests.core.search.results import SCORE, TWO, row, scored, seed


def front_probabilities(found: Sequence[Candidate], objectives: Objectives, **more: Any) -> dict[int, float]:
    """By number alone: every candidate here is at its own decisions."""
    return {n: p for (n, _), p in membership.front_probabilities(found, objectives, **more).items()}


def test_two_equal_architectures_get_about_equal_probabilities() -> None:
    """X5: sd 0.02 around one mean; which of them is called better by its mean is chance, and neither is ruled out."""
    random = np.random.default_rng(5)
    gaps, least = [], []
    for _ in range(200):
        scores = {number: list(random.normal(0.9, 0.02, size=3)) for number in (0, 1)}
        found = front_probabilities(scored(scores), SCORE, draws=200)
        assert found[0] + found[1] == pytest.approx(1.0)
        gaps.append(found[0] - found[1])
        least.append(min(found.values()))
    assert abs(np.mean(gaps)) < 0.15
    assert np.mean(np.array(least) > 0.025) > 0.85
    even = front_probabilities(scored({0: (0.88, 0.9, 0.92), 1: (0.92, 0.88, 0.9)}), SCORE)
    assert even[0] == pytest.approx(0.5, abs=0.04)


def test_a_clear_difference_is_a_clear_probability() -> None:
    found = front_probabilities(scored({0: (0.9, 0.91, 0.92), 1: (0.1, 0.11, 0.12)}), SCORE)
    assert found[0] > 0.99
    assert found[1] < 0.01


def test_a_trade_off_keeps_both_on_the_front() -> None:
    scores = {0: (0.90, 0.91, 0.92), 1: (0.70, 0.71, 0.72), 2: (0.69, 0.70, 0.71)}
    speeds = {0: (10.0, 11.0, 12.0), 1: (100.0, 101.0, 102.0), 2: (50.0, 51.0, 52.0)}
    found = front_probabilities(scored(scores, speeds), TWO)
    assert found[0] > 0.97
    assert found[1] > 0.97
    assert 0.01 < found[2] < 0.25  # slower than 1 for sure, and hardly better


def test_below_three_seeds_nothing_is_known_but_the_candidate_stands_in_the_way() -> None:
    alone = front_probabilities(scored({0: (0.8, 0.81, 0.82)}), SCORE)
    assert alone == {0: 1.0}
    assert front_probabilities(scored({0: (0.8, 0.81, 0.82), 1: (0.95, 0.96)}), SCORE)[0] < 0.02
    assert front_probabilities(scored({0: (0.8, 0.9)}), SCORE) == {}


def test_quantities_of_the_ledger_are_exact() -> None:
    objectives = Objectives({"score": "max", "memory_bytes": "min"})
    seeds = [seed(i, 0.5 + 0.01 * i) for i in range(3)]
    rows = [row(i, seeds, ledger={"memory_bytes": 100.0 + i}) for i in range(2)]
    found = front_probabilities(read(rows, objectives), objectives)
    assert found[0] == 1.0
    assert 0.3 < found[1] < 0.7


def test_what_may_not_stand_on_the_front_takes_no_part() -> None:
    off = row(1, [seed(i, 0.99 + 0.001 * i, state="off_budget") for i in range(3)])
    found = read([row(0, [seed(i, 0.5 + 0.01 * i) for i in range(3)]), off], SCORE)
    assert front_probabilities(found, SCORE) == {0: 1.0}


def test_the_same_results_give_the_same_numbers_whatever_fits_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = {n: (0.5 + 0.01 * n, 0.52, 0.54) for n in range(6)}
    whole = front_probabilities(scored(scores), SCORE)
    monkeypatch.setattr("crossbreed.core.search.membership.BLOCK", 36 * 7)
    assert front_probabilities(scored(scores), SCORE) == whole
