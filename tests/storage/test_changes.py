"""Readers that keep up: every change is found, whatever the clock does and in whichever order writers finish."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow, Changes, Revision
from crossbreed.storage.schema import Run, Trial
from tests.storage.material import add_run, add_trial, curve, leased, running, speed


class Reader:
    """Keeps the candidates of a study by what changed."""

    def __init__(self, repository: Repository, study_id: int) -> None:
        self.repository, self.study_id = repository, study_id
        self.known: dict[int, Revision] = {}
        self.rows: dict[int, CandidateRow] = {}

    def look(self) -> list[int]:
        """The numbers that were read; whatever is kept is what a whole reading gives."""
        found: Changes = self.repository.changes(self.study_id, self.known, points=None)
        for number in self.known.keys() - found.revisions.keys():
            del self.rows[number]
        self.rows.update((row.number, row) for row in found.rows)
        self.known = dict(found.revisions)
        assert [self.rows[n] for n in sorted(self.rows)] == self.repository.candidates(
            self.study_id, points=None
        )
        assert found.stamp == self.repository.stamp(self.study_id)
        return [row.number for row in found.rows]


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything happens in one instant."""
    for module in ("runs", "records", "studies", "trials"):
        monkeypatch.setattr(f"crossbreed.storage.{module}.now", lambda: datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.usefixtures("still_clock")
def test_whatever_is_written_in_one_instant_is_found_and_nothing_else_is_read(repository: Repository) -> None:
    first = add_run(repository)
    reader = Reader(repository, first.study_id)
    assert reader.look() == [0]
    second = add_run(repository, name="b")
    assert reader.look() == [1]
    lease = leased(repository, first)
    other = leased(repository, second)
    assert reader.look() == [0, 1]
    writes = [
        lambda: repository.record_started(first.id, lease, {"torch": "2"}),
        lambda: repository.record_curve(first.id, lease, curve(0, 2)),
        lambda: repository.record_rung(first.id, lease, rung=0, tokens=64, metrics={}),
        lambda: repository.record_profile(first.id, lease, "own", [speed(1.0)]),
        lambda: repository.record_profile(first.id, lease, "own", [speed(2.0)]),
        lambda: repository.record_evaluation(first.id, lease, "own", tokens=8, metrics={}, score=0.5, rows=4),
        lambda: repository.record_evaluation(first.id, lease, "own", tokens=8, metrics={}, score=0.6, rows=4),
        lambda: repository.record_analytics(
            first.id, lease, "own", {"experts": {}}, version=1, tokens=1, rows=1
        ),
        lambda: repository.record_artefact(first.id, lease, kind="file", path="f", sha256="0" * 64, bytes=1),
        lambda: repository.record_finished(first.id, lease, "done"),
        lambda: repository.add_run(first.trial_id, 1, recipe={"lr": 1e-3}, identities={}, role="report"),
    ]
    for write in writes:
        before = repository.stamp(first.study_id)
        assert write()
        assert repository.stamp(first.study_id) != before
        assert reader.look() == [0]
        assert reader.look() == []
    assert repository.lose_run(second.id, other, "gone")
    assert reader.look() == [1]
    bare = add_trial(repository, first.study_id, "c", state="queued")
    assert reader.look() == [2]
    repository.set_trial_state(bare.id, "infeasible", "a rule")
    assert reader.look() == [2]
    leased(repository, second)
    assert reader.look() == [1]
    assert [run.number for run in repository.requeue_expired(first.study_id, everything=True)] == [1]
    assert reader.look() == [1]
    with repository.database.writing() as session:
        session.delete(session.get_one(Run, first.id))
        session.delete(session.get_one(Trial, bare.id))
    assert reader.look() == [0]
    assert set(reader.rows) == {0, 1}


def test_a_study_is_told_from_others(repository: Repository) -> None:
    mine, other = add_run(repository, "mine"), add_run(repository, "other", "b")
    reader = Reader(repository, mine.study_id)
    reader.look()
    before = repository.stamp(mine.study_id)
    running(repository, other)
    repository.add_event(other.study_id, "step")
    assert repository.stamp(mine.study_id) == before
    assert reader.look() == []
    repository.add_event(mine.study_id, "step")
    assert repository.stamp(mine.study_id) != before


def test_a_writer_that_began_first_and_commits_last_is_not_missed(migrated_postgres: str) -> None:
    with Repository.open(migrated_postgres) as repository:
        slow, fast = add_run(repository, "race", "a"), add_run(repository, "race", "b")
        lease, other = running(repository, slow), running(repository, fast)
        reader = Reader(repository, slow.study_id)
        reader.look()
        wrote, go_on = threading.Event(), threading.Event()

        def write() -> None:
            with repository.batch():
                assert repository.record_finished(slow.id, lease, "done")
                wrote.set()
                assert go_on.wait(30)

        writer = threading.Thread(target=write)
        writer.start()
        assert wrote.wait(30)
        assert repository.record_finished(fast.id, other, "done")
        assert reader.look() == [1]
        go_on.set()
        writer.join()
        assert reader.look() == [0]


def test_of_thousands_of_changes_all_are_found(
    sqlite_repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbreed.storage.changes.MANY", 3)
    runs = [add_run(sqlite_repository, name=str(i)) for i in range(4)]
    reader = Reader(sqlite_repository, runs[0].study_id)
    assert reader.look() == [0, 1, 2, 3]
    for run in runs[:3]:
        running(sqlite_repository, run)
    assert set(reader.look()) >= {0, 1, 2}
