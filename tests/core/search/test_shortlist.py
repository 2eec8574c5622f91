"""The front of a large study is read from a few of its candidates, and is the front of all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossbreed.core.lab.records import Measurement
from crossbreed.core.search import divergence
from crossbreed.core.search.candidates import Objectives, read
from crossbreed.core.search.membership import front_probabilities
from crossbreed.core.search.shortlist import fix_keys, front_candidates
from crossbreed.storage import Repository

OBJECTIVES = [
    Objectives({"score": "max", "decode_tokens_per_s": "max"}),
    Objectives({"score": "min", "memory_bytes": "min", "decode_tokens_per_s": "max"}),
    Objectives({"score": "max"}),
]


def timing(median: float, device: str) -> Measurement:
    return Measurement(
        metric="decode_tokens_per_s",
        unit="tokens/s",
        phase="decode",
        batch=1,
        tokens=16,
        dtype="float32",
        device=device,
        policy="best",
        compiled=False,
        median=median,
        q1=median,
        q3=median,
        repeats=7,
    )


def fill(repository: Repository, seed: int, trials: int = 30) -> int:
    """Candidates of one to five runs, some diverged, off budget, unmeasured, timed on another device, or with routers that
    moved their costs."""
    random = np.random.default_rng(seed)
    with repository.batch():
        study = repository.create_study("mixed", {}).id
        for number in range(trials):
            trial = repository.add_trial(
                study,
                hash=f"{number:064x}",
                genome={},
                family=f"family {number % 3}",
                origin="sampler",
                ledger={"memory_bytes": float(random.integers(1, 9))},
            )
            center, speed, routed = random.random(), random.random(), number % 3 == 0
            for run_seed in range(random.choice([1, 1, 1, 2, 4, 5])):
                role = "report" if run_seed else "tune"
                run = repository.add_run(trial.id, run_seed, recipe={"lr": 1e-3}, identities={}, role=role)
                lease = repository.lease_run(run.id, "a test", seconds=60)
                assert lease is not None
                state = str(random.choice(["done"] * 8 + ["off_budget", "diverged"]))
                if state != "diverged":
                    score = round(center + 0.05 * random.random(), 2)
                    repository.record_evaluation(
                        run.id, lease, "own", tokens=16, metrics={}, score=score, rows=8,
                        ledger={"memory_bytes": float(random.integers(1, 9))} if routed else None,
                    )  # fmt: skip
                    if run_seed or random.random() < 0.95:
                        device = "slow" if random.random() < 0.9 else "fast"
                        median = round(speed + 0.1 * random.random() + 0.1, 2)
                        repository.record_profile(run.id, lease, "own", [timing(median, device)])
                repository.record_finished(run.id, lease, state)
    return study


@pytest.mark.parametrize("seed", range(2))
def test_front_and_probabilities_are_those_among_all_candidates(database: Path, seed: int) -> None:
    with Repository.open(str(database)) as repository:
        study = fill(repository, seed)
        rows = repository.candidates(study)
        for objectives in OBJECTIVES:
            found, keyed = front_candidates(repository, study, objectives)
            everything = read(rows, objectives)
            assert len(found) < len(everything)
            front = {c.row.number: c.means for c in everything if c.on_front}
            assert {c.row.number: c.means for c in found if c.on_front} == front
            assert front
            assert front_probabilities(found, keyed) == front_probabilities(everything, objectives)
            assert keyed.keys == objectives.over(rows).keys
        assert divergence.in_study(repository, study) == divergence.by_family(rows)


def test_postgresql_says_the_same(database: Path, postgres_url: str) -> None:
    found = []
    for url in (str(database), postgres_url):
        with Repository.open(url) as repository:
            study = fill(repository, 7)
            short, keyed = front_candidates(repository, study, OBJECTIVES[1])
            shown = [(c.row.number, c.means, c.on_front) for c in short]
            found.append((shown, keyed, divergence.in_study(repository, study)))
    assert found[0] == found[1]


def test_a_study_without_results_has_nobody(database: Path) -> None:
    with Repository.open(str(database)) as repository:
        study = repository.create_study("empty", {}).id
        for objectives in OBJECTIVES:
            assert front_candidates(repository, study, objectives)[0] == []
            assert fix_keys(repository, study, objectives) == objectives
