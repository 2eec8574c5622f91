"""Rules that end a session, over a real database, and the history of hypervolume that one of them reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.search.candidates import Objectives, front_volume
from crossbreed.core.search.driver import DriverOptions
from crossbreed.core.search.growth import Growth, GrowthLog, history
from crossbreed.core.search.stopping import Limits
from tests.core.search.material import Scripted, by_number, candidates, drive, setting, width_of
from tests.core.search.test_listing import driven

TOKENS = 2048
"""Of one run of the tiny study."""


def test_tokens_that_are_spent_begin_nothing_more_and_more_of_them_go_on(
    database: Path, toys: Registry
) -> None:
    study = setting(toys, search={"trials": 4, "seeds": 1})
    driver, end = driven(database, study, DriverOptions(max_tokens=2 * TOKENS))
    assert end == "out_of_tokens"
    assert driver.ended_by == (
        f"Ended by max_tokens: the study has trained {2 * TOKENS:,} tokens or more; a higher limit goes on."
    )
    # Two workers: what the other one was training is finished, and all of it is timed.
    spent = driver.repository.trained_tokens(driver.study_id)
    assert 2 * TOKENS <= spent <= 3 * TOKENS
    assert sum(len(c.done) for c in candidates(driver.repository, driver.study_id)) == spent // TOKENS
    driver, end = driven(database, study, DriverOptions(max_tokens=100 * TOKENS))
    assert (end, driver.ended_by) == ("done", None)
    # Five candidates, each on the front: one tuning run and one report run.
    assert driver.repository.trained_tokens(driver.study_id) == 10 * TOKENS


def test_fewer_trials_end_in_a_confirmed_front_and_the_study_goes_on(database: Path, toys: Registry) -> None:
    study = setting(toys, search={"trials": 4, "seeds": 3})
    driver, end = driven(database, study, DriverOptions(max_trials=2))
    assert end == "done"
    assert driver.ended_by is not None
    assert driver.ended_by.startswith(
        "Ended by max_trials: the study holds 2 candidates beside its reference"
    )
    assert len(by_number(driver.repository, driver.study_id)) == 3
    assert all(len(c.done) == 3 for c in candidates(driver.repository, driver.study_id) if c.on_front)
    driver, _ = driven(database, study)
    assert driver.ended_by is None
    assert len(by_number(driver.repository, driver.study_id)) == 5


def test_a_front_that_stopped_growing_ends_the_search(database: Path, toys: Registry) -> None:
    def only_the_reference_is_any_good(job: Job) -> tuple[float, float]:
        return (0.9, 100.0) if width_of(job) == 32 else (0.1, 1.0)

    study = setting(toys, search={"trials": 6, "seeds": 1, "stop": {"stall": {"trials": 2, "share": 0.01}}})
    repository = drive_with(database, study, only_the_reference_is_any_good)
    driver, end = repository
    assert end == "done"
    assert driver.ended_by == (
        "Ended by stall: the last 2 finished candidates made the front's hypervolume less than 1% larger."
    )
    assert 3 <= len(by_number(driver.repository, driver.study_id)) < 7
    without = setting(toys, search={"trials": 6, "seeds": 1})
    assert len(by_number(driver.repository, driver.study_id)) < 7
    drive(database, without, Scripted(only_the_reference_is_any_good))
    assert len(by_number(driver.repository, driver.study_id)) == 6


def drive_with(database: Path, study: Any, result: Any) -> tuple[Any, str]:
    from crossbreed.core.search.driver import Driver
    from crossbreed.storage import Repository

    repository = Repository.open(str(database))
    row = repository.create_study(study.file.name, study.file.as_data())
    driver = Driver(repository, row.id, study, lambda spool: Scripted(result), DriverOptions())
    return driver, driver.run()


def test_the_lower_of_two_limits_counts(toys: Registry) -> None:
    stop = {"max_hours": 2.0, "max_trials": 9, "max_tokens": 1e6}
    search = setting(toys, search={"trials": 20, "stop": stop}).file.search
    assert Limits.of(search) == Limits(9, True, 2.0, 1_000_000, None)
    assert Limits.of(search, hours=1.0, trials=30, tokens=5) == Limits(9, True, 1.0, 5, None)
    assert not Limits.of(setting(toys, search={"trials": 20}).file.search, trials=20).limited


def test_every_change_of_the_front_is_kept_with_its_reference_point(database: Path, toys: Registry) -> None:
    study = setting(toys, search={"trials": 4, "seeds": 2})
    end, repository, study_id = drive(database, study, Scripted())
    changes = history(repository, study_id)
    assert end == "done"
    assert len(changes) > 2
    stored = repository.open_study(study.file.name).reference_point
    assert all(change.reference == stored for change in changes)
    for name in ("tokens", "seconds", "trials"):
        column = [getattr(change, name) for change in changes]
        assert column == sorted(column)
    objectives = Objectives({"score": "max", "decode_tokens_per_s": "max"})
    found = candidates(repository, study_id)
    assert stored is not None
    volume = front_volume(found, objectives, stored)
    assert changes[-1].hypervolume == pytest.approx(volume)
    assert changes[-1].tokens == repository.trained_tokens(study_id)
    # A session that changes nothing adds nothing.
    drive(database, study, Scripted())
    assert history(repository, study_id) == changes


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=12), st.integers(1, 6), st.floats(0.01, 1.0))
def test_a_stall_is_relative_growth_over_the_last_trials(
    volumes: list[float], over: int, share: float
) -> None:
    class Empty:
        def events_of(self, study_id: int, kind: str, *, after: int = 0) -> list[Any]:
            return []

    volumes = sorted(volumes)
    log = GrowthLog(Empty(), 0)  # type: ignore[arg-type]
    log.changes = [Growth(0, 0.0, n, v, {}) for n, v in enumerate(volumes, start=1)]
    trials = len(volumes)
    if trials < over:
        assert not log.stalled(trials, over, share)
        return
    then, now = (volumes[trials - over - 1] if trials > over else 0.0), volumes[-1]
    assert log.stalled(trials, over, share) == (now <= 0 if then <= 0 else now - then < share * then)
