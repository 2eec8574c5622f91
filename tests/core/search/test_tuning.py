"""Fair tuning and honest reports, in whole searches with workers whose results are written down."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Finished
from crossbreed.core.search import agenda
from crossbreed.core.search.candidates import Objectives, read
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage.rows import CandidateRow, EvaluationRow, PointRow, SeedRow
from tests.core.search.material import Scripted, candidates, drive, setting, study_data, width_of

RATES = [1e-3, 1e-2, 1e-1]


def best_at_1e2(job: Job) -> tuple[float, float]:
    """The middle setting is best for all; wider is better at each."""
    return {1e-3: 0.3, 1e-2: 0.6, 1e-1: 0.1}[job.recipe["lr"]] + 0.001 * width_of(job), 4000.0 / width_of(job)


def tuned(toys: Registry, **train: Any) -> Any:
    return setting(toys, train={"lr": RATES, **train}, search={"trials": 3, "seeds": 2})


def test_every_architecture_is_tuned_over_the_same_settings_and_reported_at_its_best(
    database: Path, toys: Registry
) -> None:
    executor = Scripted(best_at_1e2)
    end, repository, study = drive(database, tuned(toys), executor)
    assert end == "done"
    found = candidates(repository, study)
    assert {c.lr for c in found} == {1e-2}
    for candidate in found:
        assert [(s.role, s.lr) for s in candidate.row.seeds] == [
            *(("tune", lr) for lr in RATES),
            *([("report", 1e-2)] * 2 if candidate.on_front else []),
        ]
        assert {s.state for s in candidate.seeds} == {"done"}
        assert candidate.values["score"] == pytest.approx([candidate.means["score"]] * len(candidate.done))
    # Timed once before anything is trained, on the first run; trained at all settings, then timed at the best one alone.
    done = defaultdict(list)
    for job in executor.log:
        if job.seed < 3:
            done[job.number].append(("profile" in job.phases, job.recipe["lr"]))
    assert done.keys() == {c.row.number for c in found}
    for first, *trained, last in done.values():
        assert (first, last) == ((True, RATES[0]), (True, 1e-2))
        assert sorted(trained) == [(False, lr) for lr in RATES]
    assert all(run.recipe["lr"] == RATES[run.seed] for run in repository.runs(study) if run.role == "tune")


def test_settings_are_halved_inside_an_architecture_and_only_its_best_one_stands_for_it(
    database: Path, toys: Registry
) -> None:
    executor = Scripted(best_at_1e2)
    study_setting = tuned(toys, tokens=4608, rungs=2, reduction=3.0)
    end, repository, study = drive(database, study_setting, executor)
    assert end == "done"
    long = defaultdict(set)
    for job in executor.log:
        if "train" in job.phases and job.seed < 3 and len(job.rungs) == 2:
            long[job.number].add(job.recipe["lr"])
    # Whoever goes on does so with one setting of three, the best.
    assert set(map(frozenset, long.values())) == {frozenset({1e-2})}
    rows = {row.number: row for row in repository.candidates(study)}
    assert all(sum(s.rungs_done >= 1 for s in r.seeds if s.role == "tune") == 3 for r in rows.values())
    causes = Counter(s.cause for r in rows.values() for s in r.seeds if s.state == "pruned")
    assert causes["lr 0.001 is not among the best 1 of 3 settings at rung 0"] == len(rows)
    beaten = [r for r in rows.values() if r.number not in long]
    assert beaten
    assert {r.state for r in beaten} == {"pruned"}
    assert {rows[n].state for n in long} == {"done"}
    # The reference is compared with, whatever its place.
    assert 0 in long


def test_a_setting_that_diverges_is_no_failure_of_its_architecture(database: Path, toys: Registry) -> None:
    executor = Scripted(best_at_1e2)

    def diverges(job: Job) -> Finished | None:
        all_of_them = width_of(job) == 8
        return Finished("diverged", "loss nan") if all_of_them or job.recipe["lr"] == 1e-2 else None

    executor.fail = diverges
    end, repository, study = drive(database, tuned(toys, tokens=4608, rungs=2), executor)
    assert end == "done"
    found = {c.row.number: c for c in candidates(repository, study)}
    assert found[1].row.family == "width 8"
    assert (found[1].row.state, found[1].lr, found[1].eligible) == ("diverged", None, False)
    assert {c.row.state for n, c in found.items() if n != 1} <= {"done", "pruned"}
    assert found[0].lr == 1e-3
    assert any(c.on_front for c in found.values())


def test_three_rungs_compare_at_each(database: Path, toys: Registry) -> None:
    executor = Scripted()
    study_setting = setting(
        toys,
        train={"tokens": 9216, "rungs": 3, "reduction": 2.0},
        search={"trials": 5, "seeds": 1},
        objectives={"score": "max"},
    )
    _, repository, study = drive(database, study_setting, executor)
    reached = Counter(s.rungs_done for r in repository.candidates(study) for s in r.seeds[:1] if r.number)
    assert reached[1] >= 1
    assert reached[2] >= 1
    assert reached[3] >= 1


def test_a_reported_mean_is_unbiased_where_the_selected_score_is_not() -> None:
    """Equal candidates with noise: the best of them looks better than it is until it is run again (winner's curse)."""
    truth, noise, studies = 0.5, 0.1, 40
    selected, reported = [], []
    for study in range(studies):
        rng = np.random.default_rng(study)

        def run(number: int, role: str, rng: np.random.Generator = rng) -> SeedRow:
            score = truth + noise * float(rng.standard_normal())
            own = PointRow("own", None, None, None, None, (), (EvaluationRow(16, {}, score, 64, 0),))
            return SeedRow(number, number, "done", None, 1, {}, {"own": own}, role, 1e-3)

        rows = {
            n: CandidateRow(n, n, "", "f", "sampler", {}, "done", None, None, None, (run(0, "tune"),))
            for n in range(30)
        }
        objectives = Objectives({"score": "max"})
        found = read(list(rows.values()), objectives)
        selected.append(max(c.means["score"] for c in found))
        while wanted := agenda.wanted_seeds(read(list(rows.values()), objectives), 3, settings=1):
            for candidate, _, seeds in wanted:
                row = candidate.row
                rows[row.number] = replace(row, seeds=(*row.seeds, *(run(n, "report") for n in seeds)))
        found = read(list(rows.values()), objectives)
        assert all(c.confirmed for c in found if c.on_front)
        # Whoever was first by luck has lost its place, and everyone who was run again is reported by fresh runs alone.
        reported += [v for c in found if c.confirmed for v in c.values["score"]]
    error = noise / np.sqrt(len(reported))
    assert np.mean(selected) > truth + 1.5 * noise
    assert abs(np.mean(reported) - truth) < 4 * error
    assert 4 * error < 0.3 * noise


def test_a_list_of_rates_needs_a_score_to_choose_by() -> None:
    objectives = {"decode_tokens_per_s": "max"}
    with pytest.raises(ConfigError, match=r"train\.lr \[0\.001, 0\.01\] is tuned by the score"):
        StudyFile.read({**study_data(train={"lr": [1e-3, 1e-2]}), "objectives": objectives})


@pytest.mark.parametrize("lr", [[], [1e-3, 0.0], [1e-3, 1e-3], -1.0])
def test_rates_are_different_numbers_above_0(lr: Any) -> None:
    with pytest.raises(ConfigError, match=r"train\.lr.*must be greater than 0"):
        StudyFile.read(study_data(train={"lr": lr}))
