from __future__ import annotations

import pytest

from crossbreed.core.search.divergence import Divergence, by_family, of_seeds
from tests.core.search.results import row, seed


def test_runs_that_trained_count_and_other_failures_do_not() -> None:
    states = ("done", "off_budget", "diverged", "failed", "lost", "out_of_memory", "queued", "pruned")
    seeds = [seed(i, None, state=state) for i, state in enumerate(states)]
    assert of_seeds(seeds) == Divergence(diverged=1, runs=4)
    rate = of_seeds(seeds).rate
    assert rate is not None
    assert rate == pytest.approx((0.25, 0.0456, 0.6994), abs=1e-4)


def test_families_pool_their_candidates_the_worst_first() -> None:
    rows = [
        row(0, [seed(0, 0.5), seed(1, None, state="diverged")], family="mamba2"),
        row(1, [seed(0, 0.5)], family="mamba2"),
        row(2, [seed(0, None, state="diverged")], family="attention"),
        row(3, [seed(0, None, state="failed")], family="never trained"),
        row(4, [seed(0, 0.5)], family="experts"),
    ]
    assert list(by_family(rows).items()) == [
        ("attention", Divergence(1, 1)),
        ("mamba2", Divergence(1, 3)),
        ("experts", Divergence(0, 1)),
    ]


def test_nothing_trained_has_no_rate() -> None:
    assert of_seeds([seed(0, None, state="queued")]).rate is None
