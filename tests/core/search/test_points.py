"""Operating points that a study file asks for: judged in every run they fit, timed in the first, stored by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Finished
from crossbreed.core.search.candidates import Objectives, read
from crossbreed.core.search.driver import DriverOptions
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from crossbreed.storage import Repository
from tests.core.search.material import Scripted, by_width, drive, plugin, setting, study_data, toy_registry

SWITCHING, SINGLE = "schedule:0=mamba2,-4=attention", "schedule:0=attention"


@pytest.fixture(scope="module")
def toys() -> Registry:
    return toy_registry()


def oryx(registry: Registry, *readers: str) -> Architecture:
    multi = {
        "mixer": "multi_mixer",
        "params": {"readers": list(readers), "heads": 1, "head_size": 8, "short_conv": None},
    }
    return registry.canonical(
        Architecture.model_validate(
            {
                "vocab": 24,
                "d_model": 16,
                "stages": [
                    {"blocks": [{"sublayers": [multi, {"mixer": "swiglu", "params": {"hidden": 8}}]}]}
                ],
                "mode_router": {"name": "segment_random", "params": {"segment": 4}},
            }
        )
    )


def test_points_reach_the_runs_they_fit_and_are_stored_beside_their_own(tmp_path: Path, toys: Registry):
    tm, tg = oryx(toys, "mamba2", "attention"), oryx(toys, "gated_deltanet", "attention")
    study = setting(
        toys, search={"trials": 0, "points": [SWITCHING, " schedule: 0=attention", "own"], "seeds": 2}
    )
    executor = Scripted()
    database = tmp_path / "points.db"
    end, repository, study_id = drive(database, study, executor, DriverOptions(named=(tm, tg)))
    assert end == "done"
    wanted = {0: (), 1: (SWITCHING, SINGLE), 2: (SINGLE,)}
    for number, points in wanted.items():
        jobs = [job for job in executor.log if job.number == number]
        assert {job.judged for job in jobs if "evaluate" in job.phases} == {points}
        detail = repository.trial_detail(study_id, number)
        assert [run.run.role for run in detail.runs] == ["tune", "report", "report"]
        for run in detail.runs:
            judged = {name for name, point in run.points.items() if point.evaluations}
            timed = {name for name, point in run.points.items() if point.measurements}
            assert judged == {*points, "own"}
            # Every seed counts at every point.
            assert timed & {SWITCHING, SINGLE} == set(points)
    repository.close()


def test_a_forced_rate_may_be_judged_too(tmp_path: Path, toys: Registry):
    tm = oryx(toys, "mamba2", "attention")
    search = {"trials": 0, "points": ["forced:0.22", SINGLE], "seeds": 1, "forced_rates": [0.22, 1.0]}
    executor = Scripted()
    _, repository, _ = drive(
        tmp_path / "forced.db", setting(toys, search=search), executor, DriverOptions(named=(tm,))
    )
    timed = [job.points for job in executor.log if job.number == 1 and "profile" in job.phases]
    # Forced rates before it is trained, the rest afterwards, and nothing twice.
    assert timed == [("forced:0.22", "forced:1"), (SINGLE, "own"), ("forced:0.22", SINGLE, "own")]
    assert Counter(job.judged for job in executor.log if "train" in job.phases) == {
        (): 2,
        ("forced:0.22", SINGLE): 2,
    }
    repository.close()


def test_points_added_to_a_finished_study_judge_its_runs_again_without_training(
    tmp_path: Path, toys: Registry
):
    tm, database = oryx(toys, "mamba2", "attention"), tmp_path / "added.db"
    drive(database, setting(toys, search={"trials": 0, "seeds": 2}), Scripted(), DriverOptions(named=(tm,)))

    def better_when_switching(job: Job) -> tuple[float, float]:
        return (0.9, 9000.0) if SWITCHING in job.judged else by_width(job)

    executor, study = (
        Scripted(better_when_switching),
        setting(toys, search={"trials": 0, "seeds": 2, "points": [SWITCHING]}),
    )
    with Repository.open(str(database)) as repository:
        before = {run.key: run for run in repository.runs(1)}
    end, repository, study_id = drive(database, study, executor)
    assert end == "done"
    assert [(job.number, job.seed) for job in executor.log] == [(1, 1), (1, 2)]
    assert {(job.phases, job.judged, job.points) for job in executor.log} == {
        (("evaluate", "profile"), (SWITCHING,), (SWITCHING,))
    }
    after = {run.key: run for run in repository.runs(study_id)}
    assert {key: (run.state, run.lease, run.environment) for key, run in after.items()} == {
        key: (run.state, run.lease, run.environment) for key, run in before.items()
    }
    objectives = Objectives.of(study.file)
    found = read(repository.candidates(study_id, points=objectives.points), objectives)
    assert [c.key for c in found if c.on_front][-1] == (1, SWITCHING)
    repository.close()
    # Nothing is left to judge.
    again = Scripted()
    drive(database, study, again)[1].close()
    assert again.log == []


TABLE = """
from dataclasses import replace

from crossbreed import hookimpl
from crossbreed.plugins import mixers


@hookimpl
def register_mixers():
    (found,) = [d for d in mixers.register_mixers() if d.name == "attention"]
    return [replace(found, name="table", capabilities=replace(found.capabilities, longest=40))]
"""
"""Attention that reads 40 tokens at most."""


def table() -> dict[str, Any]:
    sublayers = [
        {"mixer": "table", "params": {"heads": 1, "head_size": 16}},
        {"mixer": "swiglu", "params": {"hidden": 8}},
    ]
    block = {"sublayers": sublayers}
    return {"vocab": 24, "d_model": 16, "stages": [{"blocks": [block]}]}


def test_longer_texts_reach_every_run_that_can_read_them_and_compete_for_nothing(tmp_path: Path) -> None:
    registry = toy_registry(plugin("table.py", TABLE))
    limited = registry.canonical(Architecture.model_validate(table()))
    study = setting(registry, search={"trials": 0, "seeds": 1}, evaluation={"lengths": [4, 2]})
    assert study.file.points == ("length:2", "length:4")
    executor = Scripted()
    end, repository, study_id = drive(
        tmp_path / "lengths.db", study, executor, DriverOptions(named=(limited,))
    )
    assert end == "done"
    wanted = {0: {"length:2", "length:4", "own"}, 1: {"length:2", "own"}}
    for number, points in wanted.items():
        for run in repository.trial_detail(study_id, number).runs:
            assert {name for name, point in run.points.items() if point.evaluations} == points
    objectives = Objectives.of(study.file)
    assert {c.point for c in read(repository.candidates(study_id, points=None), objectives)} == {"own"}
    repository.close()


def test_a_mixer_is_left_out_of_a_search_whose_texts_it_cannot_read() -> None:
    registry = toy_registry(plugin("table.py", TABLE))
    longer = study_data(task={"params": {"pairs": 2, "length": 64, "vocab": 24, "eval_items": 64}})
    left_out = resolve(StudyFile.read(longer), registry).left_out
    assert left_out == ("mixer 'table' reads texts of 40 tokens at most; the task's have 64.",)


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"evaluation": {"lengths": [0]}}, "lengths.0 must be at least 1, got 0"),
        ({"search": {"points": ["length:2"]}}, "'length:2' cannot compete .* name it in evaluation.lengths"),
    ],
)
def test_lengths_that_a_study_file_may_not_name(section: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        StudyFile.read(study_data(**section))


def test_a_point_that_cannot_be_judged_again_leaves_the_run_as_it_was(tmp_path: Path, toys: Registry):
    tm, database = oryx(toys, "mamba2", "attention"), tmp_path / "failing.db"
    drive(database, setting(toys, search={"trials": 0, "seeds": 1}), Scripted(), DriverOptions(named=(tm,)))
    executor = Scripted()
    executor.fail = lambda job: Finished("failed", "no checkpoint")
    study = setting(toys, search={"trials": 0, "seeds": 1, "points": [SINGLE]})
    end, repository, study_id = drive(database, study, executor)
    assert end == "done"
    assert len(executor.log) == 1
    assert {run.state for run in repository.runs(study_id)} == {"done"}
    (event,) = repository.events_of(study_id, "points_left_out")
    assert event.payload["cause"] == "no checkpoint"
    repository.close()


@pytest.mark.parametrize(
    ("point", "sentence"),
    [
        ("schedule:1=0", "search.points: schedule '1=0' must begin with '0='"),
        ("scheduled:0=0", "unknown operating point 'scheduled:0=0'"),
        ("forced:2", "unknown operating point 'forced:2'"),
    ],
)
def test_what_is_no_point_is_refused_when_the_file_is_read(point: str, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        StudyFile.read(study_data(search={"points": [point]}))


@pytest.mark.parametrize(
    ("point", "sentence"),
    [
        ("schedule:0=0,16=1", "switches at '16', which is not inside a text of 16 tokens"),
        ("schedule:0=mamba2,8=atention", "takes mode 'atention'; did you mean 'attention'"),
        ("schedule:0=9", "takes mode '9'"),
    ],
)
def test_what_no_candidate_can_run_is_refused_before_the_search(toys: Registry, point: str, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        resolve(StudyFile.read(study_data(search={"points": [point]})), toys)


def test_numbers_mean_the_references_modes(toys: Registry):
    reference: dict[str, Any] = oryx(toys, "mamba2", "attention").model_dump(mode="json")
    data = study_data(search={"points": ["schedule:0=0,8=2"]})
    data["budget"]["reference"] = reference
    with pytest.raises(ConfigError, match="takes mode '2'; the modes are: mamba2, attention"):
        resolve(StudyFile.read(data), toys)
