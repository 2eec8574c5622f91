"""Two processes on one study: the second is refused, or helps; which of them does what, and what is left when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from crossbreed.core.errors import ConfigError
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow
from tests.core.search.test_survival import check_artefacts, registry, study_of

RUN = """
import json, sys
from crossbreed.core.host import Host, PluginFile
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
url, file, plugin, how = sys.argv[1:5]
registry = Host.load([PluginFile.read(plugin)], third_party=False)
begin = Study.join if how == "join" else Study.start
with begin(url, StudyFile.load(file), registry) as study:
    print(study.run(executor="inline", device="cpu", join=how == "join").end, flush=True)
"""


Popen = subprocess.Popen[str]
Begin = Callable[[str, StudyFile, str], Popen]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """``begin(url, file, how)`` starts a process that drives the study, or joins its driver, one run at a time."""
    begun = []

    def begin(url: str, file: StudyFile, how: str) -> subprocess.Popen[str]:
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(file.as_data()))
        plugin = Path(__file__).with_name("mishaps.py")
        begun.append(
            subprocess.Popen(
                [sys.executable, "-c", RUN, url, str(tmp_path / "study.yaml"), str(plugin), how],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        )
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def two_at_work(begin: Begin, url: str, file: StudyFile, folder: Path) -> tuple[Popen, Popen]:
    """A driver, and a helper that holds a run of its study. The driver's first candidate waits for the helper."""
    driver = begin(url, file, "drive")
    when(url, lambda r: bool(held_by(r, "driver")), driver)
    helper = begin(url, file, "join")
    when(url, lambda r: bool(r.events_of(r.open_study("tiny").id, "help")), driver, helper)
    (folder / "marks" / "go").touch()
    when(url, lambda r: bool(held_by(r, "helper")), driver)
    return driver, helper


def when(url: str, true: Callable[[Repository], bool], *processes: subprocess.Popen[str]) -> None:
    """Wait until something is true of the stored study."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for process in processes:
            assert process.poll() is None, process.communicate()
        try:
            with Repository.open(url, read_only=True, create=False) as repository:
                if repository.find_study("tiny") is not None and true(repository):
                    return
        except ConfigError:
            pass  # not made yet
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def held_by(repository: Repository, role: str) -> list[RunRow]:
    runs = repository.runs(repository.open_study("tiny").id, ("leased", "running"))
    return [run for run in runs if (signed := Process.read(run.worker)) and signed[0] == role]


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
    file = study_of(tmp_path / "marks", ("wait", "1:", "2:"), seconds=0.1)
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
    file = study_of(tmp_path / "marks", ("wait", "1:", "2:"), seconds=0.1)
    driver, helper = two_at_work(begin, url, file, tmp_path)
    dead = {"driver": driver, "helper": helper}[victim]
    dead.send_signal(signal.SIGKILL)
    dead.wait()
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
        assert len(taken) == 1
        assert check_artefacts(repository, study) == len(repository.runs(study))


def test_a_second_driver_is_told_that_it_may_help(begin: Begin, tmp_path: Path) -> None:
    url, file = str(tmp_path / "study.db"), study_of(tmp_path / "marks", ("",))
    with Study.start(url, file, registry()) as study:
        study.repository.acquire_driver_lease(study.row.id, Process("elsewhere", "boot", 7, 1.0))
    second = begin(url, file, "drive")
    out, err = second.communicate(timeout=300)
    assert out == ""
    assert "is being driven by process 7 on host 'elsewhere'; help it with --join" in err
