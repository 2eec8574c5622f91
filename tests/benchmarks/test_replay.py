"""The replay of recorded curves: the table is the whole grid, tokens are counted once, and the committed figures hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import optuna
import pyarrow.parquet as pq
import pytest

from benchmarks.replay.record import EVERY, SEEDS, grid
from benchmarks.replay.strategies import Account, Ours, plain, replay
from benchmarks.replay.table import HERE, Curves

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def curves() -> Curves:
    return Curves.read("recall")


def test_the_table_holds_the_whole_factorial_grid(curves: Curves) -> None:
    recorded = [json.loads(text) for text in curves.draws]
    assert recorded == grid()
    assert len(recorded) == 304
    assert curves.score_NC.shape == (304, 8)
    assert np.isfinite(curves.score_NC).all()
    frame = pq.read_table(HERE / "recall.parquet").to_pandas()
    assert frame.groupby("configuration").hash.nunique().eq(1).all()
    seeds = frame.groupby("configuration").seed.nunique()
    assert seeds[seeds > 1].to_dict() == dict.fromkeys(range(0, 304, EVERY), SEEDS)


def test_tokens_are_counted_once_and_repeats_are_free(curves: Curves) -> None:
    account = Account(curves, goal=float("inf"))
    third, last = curves.shares.index(pytest.approx(1 / 3)), len(curves.shares) - 1
    account.train(5, third)
    assert account.spent == pytest.approx(1 / 3)
    assert account.finished == []
    for _ in range(2):
        account.train(5, last)
        assert account.spent == pytest.approx(1.0)
        assert account.finished == [5]
    assert account.volume == curves.volume([5])
    assert curves.volume(curves.front()) == pytest.approx(curves.whole())


def test_a_search_that_trains_everything_finds_the_whole_front(curves: Curves) -> None:
    search = plain(lambda seed: optuna.samplers.RandomSampler(seed=seed))
    (account,) = replay(curves, search, range(1), share=0.6)
    assert account.won
    assert account.spent == len(account.finished) == len(account.reached)


def test_our_rungs_stop_most_of_what_they_begin(curves: Curves) -> None:
    (account,) = replay(curves, Ours("random", learn=False), range(1), share=0.6)
    assert account.won
    assert len(account.finished) < len(account.reached)
    assert account.spent < len(account.reached)


def test_the_committed_figures_say_what_the_documentation_says() -> None:
    record = json.loads((ROOT / "docs/_records/search_replay.json").read_text())
    for table in record["tables"].values():
        found = table["strategies"]
        assert all(one["reached"] == len(one["spent"]) == record["repeats"] for one in found.values())
        ours = found["crossbreed"]
        assert ours["mean"] == pytest.approx(sum(ours["spent"]) / record["repeats"])
        assert all(
            ours["mean"] < one["mean"]
            for name, one in found.items()
            if "rungs" not in name and one is not ours
        )
