"""Cached reads, outside a browser: one load for many readers, and no stale database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import streamlit as st
from sqlalchemy import event

from crossbreed.core.errors import StorageError
from crossbreed.dashboard import queries
from crossbreed.storage import Repository
from tests.storage.material import add_run, running, speed

TABS = 10


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "results.db"
    monkeypatch.setenv("CROSSBREED_DB", str(path))
    st.cache_resource.clear()
    yield path
    st.cache_resource.clear()


def _fill(path: Path, name: str = "study") -> None:
    spec = {
        "schema": 1,
        "name": name,
        "task": {"name": "recall"},
        "budget": {"values": {"parameters": 1000}, "match": {"parameters": "2%"}, "d_model": 8},
        "train": {"tokens": 100},
    }
    with Repository.open(str(path)) as repository:
        repository.create_study(name, spec)
        run = add_run(repository, name)
        lease = running(repository, run)
        repository.record_evaluation(run.id, lease, "own", tokens=32, metrics={}, score=0.5, rows=8)
        repository.record_profile(run.id, lease, "own", [speed(100.0)])
        repository.record_finished(run.id, lease, "done")


def test_ten_tabs_on_a_cold_cache_read_once(url: Path) -> None:
    _fill(url)
    study = queries.studies()[0]
    at = queries.stamp(study)
    statements: list[str] = []
    counting = event.listens_for(queries.repository().database.engine, "before_cursor_execute")
    counting(lambda _c, _cursor, statement, *_: statements.append(statement))
    together = threading.Barrier(TABS)

    def tab() -> queries.Results:
        together.wait(30)
        return queries.results(study, at)

    with ThreadPoolExecutor(TABS) as pool:
        found = [f.result() for f in [pool.submit(tab) for _ in range(TABS)]]
    assert all(result is found[0] for result in found)
    assert len([s for s in statements if "FROM measurement" in s]) == 1
    assert [c.on_front for c in found[0].candidates] == [True]


def test_the_pulse_moves_with_what_is_recorded_and_only_then(url: Path) -> None:
    _fill(url)
    with Repository.open(str(url)) as repository:
        before = queries.pulse("study")
        assert queries.pulse("study") == before
        study = repository.open_study("study")
        run = add_run(repository, "study", "b")
        assert queries.pulse("study") == before, "tabs that ask in one second share what is read"
        a_second_passes()
        added = queries.pulse("study")
        assert added != before
        repository.record_started(run.id, repository.lease_run(run.id, "w", seconds=60) or "", {})
        a_second_passes()
        assert queries.pulse("study") != added
        hold = repository.acquire_driver_lease(study.id)
        driven = queries.pulse()
        assert queries.progress(study, queries.stamp(study)).standing == "running"
        repository.release_driver_lease(study.id, hold.token)
        assert queries.pulse() != driven


def a_second_passes() -> None:
    queries._stamp.clear()


def test_a_study_is_complete_when_all_candidates_are_drawn_and_ended(url: Path) -> None:
    _fill(url)
    study = queries.studies()[0]
    assert queries.progress(study, queries.stamp(study)).standing == "idle"
    with Repository.open(str(url)) as repository:
        repository.set_spec(study.id, {**study.spec, "search": {"trials": 2}})
        repository.add_event(study.id, "repeat", {"trial": 0})
    a_second_passes()
    study = queries.studies()[0]
    assert queries.progress(study, queries.stamp(study)).standing == "complete"


def test_a_database_that_was_replaced_is_opened_anew(url: Path, tmp_path: Path) -> None:
    _fill(url, "old")
    assert [s.name for s in queries.studies()] == ["old"]
    other = tmp_path / "other.db"
    _fill(other, "new")
    url.unlink()
    with pytest.raises(StorageError, match="is not there"):
        queries.studies()
    for suffix in ("-wal", "-shm"):
        url.with_name(url.name + suffix).unlink(missing_ok=True)
    other.rename(url)
    assert [s.name for s in queries.studies()] == ["new"]
    study = queries.studies()[0]
    assert len(queries.results(study, queries.stamp(study)).candidates) == 1


def test_nothing_can_be_written_through_the_dashboards_repository(url: Path) -> None:
    _fill(url)
    with pytest.raises(StorageError, match="read-only"):
        queries.repository().add_event(1, "x")


def test_one_engine_serves_any_number_of_threads_with_a_session_each(url: Path) -> None:
    _fill(url)
    together = threading.Barrier(TABS)

    def tab(_: int) -> tuple[int, int]:
        together.wait(30)
        opened = queries.repository()
        # Connections wander between threads; whatever a page reads, none is left behind by it.
        study = queries.studies()[0]
        at = queries.stamp(study)
        detail = queries.detail(study, 0, at)
        queries.health(study, at), queries.effects(study, at), queries.volumes(study, at)
        return id(opened.database.engine), len(detail.trial.runs)

    with ThreadPoolExecutor(TABS) as pool:
        found = {result for _ in range(3) for result in pool.map(tab, range(TABS))}
    assert found == {(id(queries.repository().database.engine), 1)}
    assert queries.repository().database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
