"""Operating points that a study file asks for: judged in every run they fit, timed in the first, stored by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.search.driver import DriverOptions
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from tests.core.search.material import Scripted, drive, setting, study_data, toy_registry

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
        for place, run in enumerate(detail.runs):
            judged = {name for name, point in run.points.items() if point.evaluations}
            timed = {name for name, point in run.points.items() if point.measurements}
            assert judged == {*points, "own"}
            # Schedules cost the same whatever the seed: the first run is timed under them.
            assert timed & {SWITCHING, SINGLE} == (set(points) if place == 0 else set())
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
    assert timed == [("forced:0.22", "forced:1"), (SINGLE, "own"), ("own",)]
    assert Counter(job.judged for job in executor.log if "train" in job.phases) == {
        (): 2,
        ("forced:0.22", SINGLE): 2,
    }
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
