"""Searches whose artefacts are in a store: in memory, and in one of objects that several processes see and that fails."""

from __future__ import annotations

import hashlib
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec.config
import pytest

from crossbreed.core.artefacts import Artefacts, patience
from crossbreed.core.errors import ArtefactsLost, ConfigError
from crossbreed.core.lab.train import Trainer
from crossbreed.core.search import executors, reproduce, trained
from crossbreed.core.search import patience as waiting
from crossbreed.core.search.executors.base import Spool
from crossbreed.core.search.executors.ray_worker import Worker
from crossbreed.core.search.jobs import Jobs
from crossbreed.core.search.study import PASSING, Study
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage import Repository, archive, unarchive
from tests.core.search.material import study_data, toy_registry
from tests.core.search.sessions import Begin, when
from tests.core.search.test_survival import study_of
from tests.support import buckets

FEW = {"objectives": {"score": "max", "parameters": "min"}}


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of objects, where studies keep their artefacts; the folder that faults are ordered in."""
    with buckets.store(tmp_path / "store", monkeypatch, "b") as folder:
        monkeypatch.setenv("CROSSBREED_ARTEFACTS", "bucket://b/lab")
        yield folder


def toy_file(**changes: Any) -> StudyFile:
    return StudyFile.read(study_data(**{**FEW, **changes}))


def check_stored(repository: Repository, study: int) -> int:
    """Every artefact in the tables is in the store, whole, and no record waits. Returns how many there are."""
    details = [repository.trial_detail(study, t.number) for t in repository.trials(study)]
    stored = [artefact for detail in details for run in detail.runs for artefact in run.artefacts]
    for artefact in stored:
        data = repository.artefacts.read(artefact.path)
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (artefact.sha256, artefact.bytes)
    assert Spool.of(repository.artefacts, "tiny").leases() == []
    return len(stored)


def inline(study: Study, **more: Any) -> str:
    return study.run(executor="inline", device="cpu", **more).end


def test_a_study_lives_in_memory_from_its_rungs_to_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"memory://{uuid.uuid4().hex}"
    monkeypatch.setenv("CROSSBREED_ARTEFACTS", f"{place}/first")
    file = toy_file(train={"tokens": 1024, "batch": 8, "rungs": 2, "log_every": 2}, search={"trials": 1})
    with Study.start(str(tmp_path / "study.db"), file, toy_registry()) as study:
        assert study.notes == (f"{PASSING} '{place}/first'.",)
        assert inline(study) == "done"
        repository, key = study.repository, study.row.id
        runs = [run for run in repository.runs(key) if run.state == "done"]
        # Runs that were compared at their first rung went on from its checkpoint.
        assert 3 in {run.environment["resumed_step"] for run in runs}
        assert check_stored(repository, key) >= 2 * len(runs)
        assert not (tmp_path / "study-artefacts").exists()
        model = trained.load(repository, runs[0].key, toy_registry())
        assert model.header.step == 8
        plan = reproduce.plan(repository, runs[0].key, toy_registry(), Artefacts.at(f"{place}/again"))
        found = plan.run(executors.choose("inline", device="cpu"))
        assert (found.equal, found.folder) == (True, f"{place}/again")
        assert Artefacts.at(found.folder).names() == ["rung-0.safetensors", "rung-1.safetensors"]
        with pytest.raises(ConfigError, match="exists already; a run is repeated in a fresh one"):
            reproduce.plan(repository, runs[0].key, toy_registry(), Artefacts.at(f"{place}/again"))
        zipped = f"{place}/out/first.zip"
        contents = archive.write(repository.database, "tiny", zipped, files=True)
        with pytest.raises(ConfigError, match="exists already"):
            archive.write(repository.database, "tiny", zipped)
    monkeypatch.setenv("CROSSBREED_ARTEFACTS", f"{place}/second")
    with Repository.open(str(tmp_path / "second.db")) as there:
        assert unarchive.read(there.database, zipped) == (contents, False)
        assert check_stored(there, there.open_study("tiny").id) == contents.files
    # A new study of that name would go on from checkpoints that are not its own.
    with pytest.raises(ConfigError, match=r"second/tiny' holds artefacts of a study 'tiny'"):
        Study.start(str(tmp_path / "third.db"), file, toy_registry())


def test_what_only_one_process_sees_is_refused_where_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSBREED_ARTEFACTS", f"memory://{uuid.uuid4().hex}")
    with Study.start(str(tmp_path / "study.db"), toy_file(), toy_registry()) as study:
        with pytest.raises(
            ConfigError, match="memory of one process, which the workers of executor 'ray' cannot"
        ):
            study.run(executor="ray", workers=1, device="cpu")
        with pytest.raises(ConfigError, match="a helper and its driver cannot share"):
            inline(study, join=True)
        assert study.repository.trials(study.row.id) == []


def test_a_search_in_a_store_is_interrupted_and_goes_on_from_its_checkpoint(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = toy_file(train={"tokens": 1024, "batch": 8, "rungs": 1}, search={"trials": 1})
    step, url = Trainer._one_step, str(tmp_path / "study.db")

    def interrupted(trainer: Trainer, *batches: Any) -> Any:
        found = step(trainer, *batches)
        if trainer.step == 5:
            signal.raise_signal(signal.SIGINT)
        return found

    with Study.start(url, file, toy_registry()) as study, monkeypatch.context() as patched:
        patched.setattr(Trainer, "_one_step", interrupted)
        assert inline(study) == "interrupted"
        (stopped,) = study.repository.runs(study.row.id, ("preempted",))
        assert study.repository.artefacts.under(f"tiny/{stopped.number}/0").names() == ["stopped.safetensors"]
    load, steps = Trainer.load, []

    def loaded(trainer: Trainer, folder: Artefacts, name: str) -> Any:
        header = load(trainer, folder, name)
        steps.extend([header.step] if name == "stopped.safetensors" else [])
        return header

    monkeypatch.setattr(Trainer, "load", loaded)
    with Study.start(url, file, toy_registry()) as study:
        assert inline(study) == "done"
        runs = study.repository.runs(study.row.id)
        assert {run.state for run in runs} == {"done"}
        assert steps == [5]
        assert check_stored(study.repository, study.row.id) == len(runs)
    assert not [p for p in (bucket / "b").iterdir() if "stopped" in p.name or p.name.startswith(".")]


def test_a_put_that_fails_twice_is_made_and_one_that_always_fails_ends_its_run_alone(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "WAITS_S", (0.0, 0.0))
    buckets.order(
        bucket,
        {"part": "tiny/0/0/rung-0", "times": 2, "after": 2000},
        {"part": "tiny/1/0/rung-0", "times": 10**6, "after": 2000},
    )
    file = toy_file(train={"tokens": 512, "batch": 8, "rungs": 1}, search={"trials": 2})
    with Study.start(str(tmp_path / "study.db"), file, toy_registry()) as study:
        assert inline(study) == "done"
        runs = {run.number: run for run in study.repository.runs(study.row.id)}
        assert {number: run.state for number, run in runs.items()} == {0: "done", 1: "failed", 2: "done"}
        assert runs[1].cause.startswith("disk: checkpoint 'bucket://b/lab/tiny/1/0/rung-0.safetensors' could")
        assert runs[1].cause.endswith("was reset), nor 2 times more")
        assert buckets.SECRET not in runs[1].cause + (runs[1].traceback or "")
        assert (
            check_stored(study.repository, study.row.id) == study.repository.run_states(study.row.id)["done"]
        )
    # Nothing of it is left.
    assert not [p for p in (bucket / "b").iterdir() if "tiny%2F1" in p.name]


def test_a_store_that_does_not_answer_begins_no_run(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Study.start(str(tmp_path / "study.db"), toy_file(), toy_registry()) as study:
        monkeypatch.setitem(fsspec.config.conf, "bucket", {"folder": str(bucket), "secret": "stale"})
        study.repository.database.artefacts = Artefacts.at("bucket://b/lab")
        with pytest.raises(ArtefactsLost, match="'bucket://b/lab' cannot be opened from host"):
            inline(study)
        assert study.repository.trials(study.row.id) == []


def test_a_store_that_was_away_is_waited_for_and_no_run_fails(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away, waits, begun, submit = bucket / buckets.AWAY, [], [], Jobs.submit

    def leave(self: Jobs, item: Any, **conditions: Any) -> bool:
        begun.append(item)
        if len(begun) == 3 and not waits:
            away.touch()
        return submit(self, item, **conditions)

    def come_back(seconds: float) -> None:
        waits.append(seconds)
        away.unlink(missing_ok=True)

    monkeypatch.setattr(Jobs, "submit", leave)
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=time.monotonic, sleep=come_back))
    file = toy_file(train={"tokens": 512, "batch": 8, "rungs": 1}, search={"trials": 1})
    with Study.start(str(tmp_path / "study.db"), file, toy_registry()) as study:
        assert inline(study) == "done"
        assert len(waits) == 1
        assert set(study.repository.run_states(study.row.id)) == {"done"}
        assert check_stored(study.repository, study.row.id) == len(study.repository.runs(study.row.id))
    assert "the store does not answer" in caplog.text
    assert "waiting for the store" in caplog.text


def test_a_worker_that_sees_another_place_is_not_ready(bucket: Path) -> None:
    spool = Spool.of(Artefacts.at("bucket://b/lab"), "tiny")
    worker = Worker(spool.place.place, "cpu")
    with pytest.raises(ArtefactsLost, match=r"are another place on host .* than the driver's"):
        worker.ready()
    spool.mark()
    spool.check_marked()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_ray_search_in_a_store_survives_its_driver(tmp_path: Path, bucket: Path, begin: Begin) -> None:
    url = str(tmp_path / "study.db")
    file = study_of(tmp_path / "marks", ("record", "die_once", "disk"), train={"log_every": 2}, **FEW)
    first = begin(url, file, executor="ray", workers=2)
    mark = tmp_path / "marks" / "record"
    when(url, lambda repository: mark.exists(), first)
    first.kill()
    first.wait()
    (tmp_path / "marks" / "go").touch()
    with Repository.open(url) as repository:
        assert Spool.of(repository.artefacts, "tiny").leases()
    second = begin(url, file, executor="ray", workers=2)
    out, err = second.communicate(timeout=300)
    assert out.strip().endswith("done"), err
    with Repository.open(url) as repository:
        key = repository.open_study("tiny").id
        runs = repository.runs(key)
        (unkept,) = {run.number: run for run in runs if run.state != "done"}.values()
        assert unkept.cause.startswith("disk: checkpoint 'bucket://b/lab/tiny/")
        assert check_stored(repository, key) == repository.run_states(key)["done"]
