"""How many statements things take: a study that grows must not take more of them."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import event

from crossbreed.core.search.candidates import Objectives
from crossbreed.core.search.shortlist import front_candidates
from crossbreed.storage import Repository
from tests.storage.material import add_run, curve, leased, running, speed


def statements(repository: Repository, work: Callable[[], object]) -> int:
    """Statements that ``work`` sends to the database; one for many rows counts once."""
    sent: list[str] = []

    def count(connection: object, cursor: object, statement: str, *more: object) -> None:
        sent.append(statement)

    event.listen(repository.database.engine, "before_cursor_execute", count)
    try:
        work()
    finally:
        event.remove(repository.database.engine, "before_cursor_execute", count)
    return len(sent)


def test_many_values_are_written_by_as_few_statements_as_one(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    few = statements(repository, lambda: repository.record_curve(run.id, lease, curve(0, 1)))
    many = statements(repository, lambda: repository.record_curve(run.id, lease, curve(1, 400)))
    assert few == many < 6
    assert len(repository.curve(run.id)) == 400


def test_a_record_asks_nothing_of_its_run_but_whether_the_lease_holds(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    work = [
        lambda: repository.record_curve(run.id, lease, curve(0, 9)),
        lambda: repository.record_artefact(run.id, lease, kind="log", path="x", sha256="0" * 64, bytes=1),
    ]
    one_record, two_records = (2 + _begin(repository), 4 + _begin(repository))
    assert [statements(repository, write) for write in work] == [one_record] * 2

    def both() -> None:
        with repository.batch():
            for write in work:
                write()

    assert statements(repository, both) == two_records


def test_of_a_candidate_without_points_no_results_are_asked(repository: Repository) -> None:
    run = add_run(repository)
    lease = leased(repository, run)

    def read() -> None:
        (row,) = repository.candidates(run.study_id, points=None)
        assert len(row.seeds) == 1

    assert statements(repository, read) == 3 + _begin(repository)
    repository.record_started(run.id, lease, {})
    repository.record_profile(run.id, lease, "forced:1", [speed(1.0)])
    assert statements(repository, read) == 5 + _begin(repository)


def _begin(repository: Repository) -> int:
    """Statements that begin a transaction."""
    return int(repository.database.is_sqlite)


def test_the_records_of_many_runs_are_one_transaction(repository: Repository) -> None:
    commits: list[object] = []

    def note(connection: object) -> None:
        commits.append(connection)

    leased = [
        (run.id, running(repository, run)) for run in (add_run(repository, name=str(i)) for i in range(5))
    ]
    event.listen(repository.database.engine, "commit", note)
    try:
        with repository.batch():
            for run_id, lease in leased:
                repository.record_curve(run_id, lease, curve(0, 30))
                repository.record_finished(run_id, lease, "done")
    finally:
        event.remove(repository.database.engine, "commit", note)
    assert len(commits) == 1


def test_the_front_takes_as_many_statements_of_a_large_study_as_of_a_small_one(
    repository: Repository,
) -> None:
    objectives = Objectives({"score": "max", "decode_tokens_per_s": "max"})

    def grow(first: int, last: int) -> None:
        with repository.batch():
            for number in range(first, last):
                run = add_run(repository, name=str(number))
                lease = running(repository, run)
                repository.record_evaluation(
                    run.id, lease, "own", tokens=32, metrics={}, score=1.0 / (1 + number), rows=8
                )
                repository.record_profile(run.id, lease, "own", [speed(1.0 + number % 7)])
                repository.record_finished(run.id, lease, "done")

    grow(0, 3)
    study = repository.open_study("study").id
    few = statements(repository, lambda: front_candidates(repository, study, objectives))
    grow(3, 40)
    many = statements(repository, lambda: front_candidates(repository, study, objectives))
    assert few == many < 15
    found, _ = front_candidates(repository, study, objectives)
    # Of each speed only the best scores are read.
    assert {c.row.number for c in found if c.on_front} == set(range(7))
    assert len(found) == 7
