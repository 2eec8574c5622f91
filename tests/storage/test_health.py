"""Bad ends are counted by cause in the database, with the latest run of each."""

from __future__ import annotations

from crossbreed.storage import Repository
from tests.storage.material import add_run, running


def failed(repository: Repository, study: str, name: str, cause: str, state: str = "failed") -> int:
    run = add_run(repository, study, name)
    lease = running(repository, run)
    repository.record_finished(run.id, lease, state, cause=cause, traceback=f"of {name}")
    return run.id


def test_failures_are_grouped_by_cause_most_frequent_first(repository: Repository) -> None:
    failed(repository, "s", "a", "exception: ValueError")
    last = failed(repository, "s", "b", "exception: ValueError")
    diverged = failed(repository, "s", "c", "loss is not finite", "diverged")
    failed(repository, "other", "d", "exception: ValueError")
    done = add_run(repository, "s", "e")
    repository.record_finished(done.id, running(repository, done), "done")
    first, second = repository.failures(done.study_id)
    assert (first.state, first.cause, first.count, first.latest.id) == (
        "failed",
        "exception: ValueError",
        2,
        last,
    )
    assert first.latest.traceback == "of b"
    assert (second.state, second.count, second.latest.id) == ("diverged", 1, diverged)
    assert [f.count for f in repository.failures(done.study_id, limit=1)] == [2]


def test_who_is_at_work_and_what_began_last(repository: Repository) -> None:
    old = add_run(repository, "s", "a")
    repository.record_finished(old.id, running(repository, old), "done")
    busy = add_run(repository, "s", "b")
    running(repository, busy)
    add_run(repository, "s", "waiting")
    assert [r.id for r in repository.at_work(old.study_id)] == [busy.id]
    assert [r.id for r in repository.latest_runs(old.study_id, 5)] == [busy.id, old.id]
    assert [r.id for r in repository.latest_runs(old.study_id, 1)] == [busy.id]
