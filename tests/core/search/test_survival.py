"""Everything that can happen to a worker, really done to Ray workers in one search: each run ends as it must, the others go on
and give the losses of an inline search."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from crossbreed.core.host import Host, PluginFile, Registry
from crossbreed.core.search.breeding import Breeder
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage import Repository
from tests.core.search.material import study_data

MISHAPS = Path(__file__).with_name("mishaps.py")


def registry() -> Registry:
    return Host.load([PluginFile.read(MISHAPS)], third_party=False)


def study_of(folder: Path, hows: tuple[str, ...], **changes: Any) -> StudyFile:
    """A study with one candidate for each mishap, and nothing else beside its reference."""
    folder.mkdir(exist_ok=True)
    given = {name: changes.pop(name) for name in ("seconds", "bytes") if name in changes}
    params = {"hows": hows, "folder": str(folder), **given}
    search = {"trials": len(hows), "seeds": 1, "forced_rates": [], **changes.pop("search", {})}
    data = study_data(
        space={"name": "mishaps", "params": params},
        search=search,
        **changes,
    )
    data["task"] = {**data["task"], "name": "tale"}
    # So large that the candidate whose checkpoint does not fit is within the budget.
    data["budget"]["reference"]["stages"][0]["blocks"][0]["sublayers"][1]["params"]["hidden"] = 4000
    return StudyFile.read(data)


def by_family(repository: Repository, study: int) -> dict[str, Any]:
    """State and cause of each candidate's first run, by what happens to it."""
    families = {t.number: t.family for t in repository.trials(study)}
    return {families[r.number]: r for r in repository.runs(study) if r.seed == 0}


def check_artefacts(repository: Repository, study: int, name: str = "tiny") -> int:
    """Every checkpoint in the tables is there and whole, nothing half-written lies beside it, and no record waits.

    Returns how many there are.
    """
    details = [repository.trial_detail(study, t.number) for t in repository.trials(study)]
    stored = [artefact for detail in details for run in detail.runs for artefact in run.artefacts]
    for artefact in stored:
        data = (repository.artefacts.path / artefact.path).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (artefact.sha256, artefact.bytes)
    on_disk = [p for p in (repository.artefacts.path / name).rglob("*") if p.is_file()]
    assert [p for p in on_disk if p.name.startswith(".")] == []
    assert list((repository.artefacts.path / "spool").rglob("*.jsonl")) == []
    return len(stored)


def children() -> dict[int, str]:
    """Living processes under this one, with their command lines."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())
    return found


def still_alive(before: dict[int, str]) -> list[str]:
    """Processes begun since ``before`` that are there after ten seconds of patience."""
    deadline = time.monotonic() + 10
    # The browser of this session's other tests begins helpers of its own whenever it likes.
    while new := [x for pid, x in children().items() if pid not in before and "chromium" not in x]:
        if time.monotonic() > deadline:
            return new
        time.sleep(0.2)
    return []


def losses(study: Study) -> dict[str, list[float | None]]:
    """The curve of each candidate that was trained to its end."""
    runs = by_family(study.repository, study.row.id)
    curves = {family: study.repository.curve(run.id) for family, run in runs.items() if run.state == "done"}
    return {family: [point.loss_nats for point in curve] for family, curve in curves.items()}


@pytest.mark.timeout(400)
def test_whatever_happens_to_workers_ends_in_a_record_and_the_search_goes_on(tmp_path: Path) -> None:
    hows = ("die_once", "hang", "disk")
    few = {"objectives": {"parameters": "min"}, "train": {"log_every": 2}}
    # Long enough for what is healthy on a busy machine.
    file = study_of(tmp_path / "marks", hows, search={"deadline_s": 8}, **few)
    before = children()
    with Study.start(str(tmp_path / "study.db"), file, registry()) as study:
        outcome = study.run(executor="ray", workers=2, device="cpu")
        assert outcome.end == "done"
        repository, key = study.repository, study.row.id
        assert [t.number for t in repository.trials(key)] == list(range(1 + len(hows)))
        runs = by_family(repository, key)
        assert Counter(t.state for t in repository.trials(key)) == {"done": 2, "failed": 2}, runs
        assert runs["die_once"].state == "done"
        assert runs["hang"].cause.startswith("deadline: nothing was finished for 8 s")
        assert runs["disk"].cause.startswith("disk: checkpoint ")
        assert "nor 2 times more" in runs["disk"].cause
        lost = Counter(e.payload["trial"] for e in repository.events(key) if e.kind == "worker_lost")
        assert lost == {runs["die_once"].number: 1}
        # One checkpoint for each run that was trained to its end.
        assert check_artefacts(repository, key) == repository.run_states(key)["done"]
        table = study.candidates()
        assert set(table[table["on_front"]]["state"]) == {"done"}
        on_ray = losses(study)
    assert still_alive(before) == []
    # The mark that spared the second worker is still there.
    healthy = study_of(tmp_path / "marks", ("die_once",), **few)
    with Study.start(str(tmp_path / "inline.db"), healthy, registry()) as study:
        assert study.run(executor="inline", device="cpu").end == "done"
        assert losses(study) == on_ray
    assert [len(curve) for curve in on_ray.values()] == [8, 8]


def test_numbers_that_no_front_could_hold_and_memory_that_is_not_there_end_a_run_of_their_own(
    tmp_path: Path,
) -> None:
    hows = ("nan", "allocator", "", "infinite")
    file = study_of(tmp_path / "marks", hows, objectives={"score": "max", "parameters": "min"})
    with Study.start(str(tmp_path / "study.db"), file, registry()) as study:
        assert study.run(executor="inline", device="cpu").end == "done"
        runs = by_family(study.repository, study.row.id)
        assert runs["nan"].state == "diverged"
        assert "at step 3 of 16" in runs["nan"].cause
        assert runs["allocator"].state == "out_of_memory"
        assert runs["infinite"].state == "failed"
        assert runs["infinite"].cause.startswith("non_finite: accuracy at 'own' is inf")
        assert runs["good"].state == "done"
        # What failed teaches a sampler nothing: its candidates have no values, not bad ones.
        breeder = Breeder(study.repository, study.row.id, study.setting)
        past = breeder.history(study.read_candidates(), study.objectives)
        told = {p.draws["how"]: p.values for p in past if p.draws}
        assert {how for how, values in told.items() if values is not None} == {""}
        assert set(told) == set(hows)
        assert (
            check_artefacts(study.repository, study.row.id)
            == study.repository.run_states(study.row.id)["done"]
        )
