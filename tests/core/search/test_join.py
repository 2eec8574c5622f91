"""Two processes on one study: the second is refused, or helps; which of them does what, and what is left when one dies."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from crossbreed.core.errors import ConfigError
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository
from tests.core.search.sessions import Begin, Popen, held_by, when
from tests.core.search.test_survival import check_artefacts, registry, study_of

SHORT_LEASES = """
from crossbreed.core.search import hold, jobs
hold.HEARTBEAT_S, hold.RUN_LEASE_S, jobs.RUN_LEASE_S = 1.0, 4.0, 4.0
"""


def two_at_work(
    begin: Begin, url: str, file: StudyFile, folder: Path, before: str = ""
) -> tuple[Popen, Popen]:
    """A driver, and a helper that holds a run of its study. The driver's first candidate waits for the helper."""
    driver = begin(url, file, "drive", before=before)
    when(url, lambda r: bool(held_by(r, "driver")), driver)
    helper = begin(url, file, "join", before=before)
    when(url, lambda r: bool(r.events_of(r.open_study("tiny").id, "help")), driver, helper)
    (folder / "marks" / "go").touch()
    # A lease alone may be given back at once, where the driver is about to time.
    when(url, lambda r: any(run.state == "running" for run in held_by(r, "helper")), driver)
    return driver, helper


def killed_at_work(url: str, process: Popen, name: str) -> list[tuple[int, int]]:
    """Kill a process while it holds runs; (trial, seed) of these. It stands still while that is looked at, since a run may end at
    any moment, and goes on where it is between two."""
    while True:
        when(url, lambda r: any(run.state == "running" for run in held_by(r, name)), process)
        process.send_signal(signal.SIGSTOP)
        with Repository.open(url, read_only=True, create=False) as repository:
            left = [(run.number, run.seed) for run in held_by(repository, name)]
        if left:
            process.kill()
            process.wait()
            return left
        process.send_signal(signal.SIGCONT)


def test_nobody_is_helped_who_does_not_drive(tmp_path: Path) -> None:
    url, file = str(tmp_path / "study.db"), study_of(tmp_path / "marks", ("",))
    Study.start(url, file, registry()).close()
    with (
        Study.join(url, file, registry()) as study,
        pytest.raises(ConfigError, match="is not being driven"),
    ):
        study.run(executor="inline", device="cpu", join=True)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_helper_trains_beside_the_driver_and_nothing_is_done_twice(begin: Begin, tmp_path: Path) -> None:
    url = str(tmp_path / "study.db")
    file = study_of(tmp_path / "marks", ("training", "1:", "2:"), seconds=0.1)
    driver, helper = two_at_work(begin, url, file, tmp_path)
    out, err = driver.communicate(timeout=400)
    assert out.strip() == "done", err
    out, err = helper.communicate(timeout=60)
    assert out.strip() == "done", err
    with Repository.open(url) as repository:
        study = repository.open_study("tiny").id
        assert set(repository.run_states(study)) == {"done"}
        assert [t.number for t in repository.trials(study)] == list(range(4))
        assert all(r.attempts == 0 for r in repository.runs(study))
        assert [e.payload["slots"] for e in repository.events_of(study, "help")] == [1, 0]
        for run in repository.runs(study):
            assert [p.step for p in repository.curve(run.id)][-1] == 16
        # Whoever trains it, each is timed on its own, under the one key that the study compares.
        timed = [seed.points["own"].speeds for row in repository.candidates(study) for seed in row.seeds]
        assert all("decode_tokens_per_s" in {m.metric for m in speeds} for speeds in timed)
        assert {sign[0] for run in repository.runs(study) if (sign := Process.read(run.worker))} >= {"helper"}
        kinds = [e.kind for e in repository.events(study)]
        assert not {"record_refused", "worker_lost", "taken_back"} & set(kinds)
        assert check_artefacts(repository, study) == len(repository.runs(study))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("victim", ["helper", "driver"])
def test_when_one_of_two_is_killed_the_study_is_finished_by_the_other(
    begin: Begin, url: str, tmp_path: Path, victim: str
) -> None:
    file = study_of(tmp_path / "marks", ("training", "1:", "2:"), seconds=0.1)
    driver, helper = two_at_work(begin, url, file, tmp_path)
    dead = {"driver": driver, "helper": helper}[victim]
    left = killed_at_work(url, dead, victim)
    if victim == "driver":
        out, err = helper.communicate(timeout=120)
        # It finished what it held, and then there was nobody to help.
        assert out.strip() == "done", err
        driver = begin(url, file, "drive")
    out, err = driver.communicate(timeout=400)
    assert out.strip() == "done", err
    with Repository.open(url) as repository:
        study = repository.open_study("tiny").id
        assert set(repository.run_states(study)) == {"done"}
        assert [t.number for t in repository.trials(study)] == list(range(4))
        taken = repository.events_of(study, "taken_back")
        assert sorted((e.payload["trial"], e.payload["seed"]) for e in taken) == sorted(left)
        assert check_artefacts(repository, study) == len(repository.runs(study))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_helper_that_comes_back_late_is_told_what_has_become_of_its_run(
    begin: Begin, tmp_path: Path
) -> None:
    url, file = (
        str(tmp_path / "study.db"),
        study_of(tmp_path / "marks", ("training", "1:", "2:"), seconds=0.2),
    )
    driver, helper = two_at_work(begin, url, file, tmp_path, SHORT_LEASES)
    # Alive, and silent for longer than its lease: nothing else can be known of a host that is away.
    helper.send_signal(signal.SIGSTOP)
    out, err = driver.communicate(timeout=300)
    assert out.strip() == "done", err
    with Repository.open(url) as repository:
        study = repository.open_study("tiny").id
        (taken,) = repository.events_of(study, "taken_back")
        late = f"tiny/{taken.payload['trial']}/{taken.payload['seed']}"
        whole = {run.key: repository.curve(run.id) for run in repository.runs(study)}
        helper.send_signal(signal.SIGCONT)
        out, err = helper.communicate(timeout=120)
        assert out.strip() == "done", err
        assert f"Records of run {late} under lease " in err
        assert "are refused: the lease is stale, and the run is done now." in err
        (refused,) = repository.events_of(study, "record_refused")
        assert refused.payload["cause"] in err
        assert {run.key: repository.curve(run.id) for run in repository.runs(study)} == whole
        assert set(repository.run_states(study)) == {"done"}
        assert check_artefacts(repository, study) == len(repository.runs(study))


def test_a_second_driver_is_told_that_it_may_help(begin: Begin, tmp_path: Path) -> None:
    url, file = str(tmp_path / "study.db"), study_of(tmp_path / "marks", ("",))
    with Study.start(url, file, registry()) as study:
        study.repository.acquire_driver_lease(study.row.id, Process("elsewhere", "boot", 7, 1.0))
    second = begin(url, file, "drive")
    out, err = second.communicate(timeout=300)
    assert out == ""
    assert "is being driven by process 7 on host 'elsewhere'; help it with --join" in err
