from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import event

from crossbreed.storage import Repository
from tests.storage.material import add_run, add_trial, curve, digest, running, speed


def trained(repository: Repository, name: str, seeds: int = 1, score: float = 0.5) -> int:
    """A trial whose seeds are done, with results at its own and at a forced operating point."""
    run = add_run(repository, "s", name)
    for seed in range(seeds):
        run = repository.add_run(run.trial_id, seed, recipe={}, identities={"mixer:attention": "0.1.0"})
        lease = running(repository, run)
        for rung in range(2):
            repository.record_rung(
                run.id, lease, rung=rung, tokens=100 * (rung + 1), metrics={"accuracy": score}
            )
        repository.record_profile(run.id, lease, "forced:0.4", [speed(50.0)])
        repository.record_profile(
            run.id, lease, "own", [speed(100.0 + seed), speed(900.0, "prefill_tokens_per_s")]
        )
        repository.record_evaluation(
            run.id,
            lease,
            "own",
            tokens=32,
            metrics={"accuracy": score},
            score=score + seed,
            rows=4,
            ledger={"x": 1},
        )
        repository.record_finished(run.id, lease, "done")
    return run.number


@contextmanager
def counting(repository: Repository) -> Iterator[Callable[[], int]]:
    """Counts SELECT statements that reach the database."""
    seen: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT"):
            seen.append(statement)

    event.listen(repository.database.engine, "before_cursor_execute", note)
    try:
        yield lambda: len(seen)
    finally:
        event.remove(repository.database.engine, "before_cursor_execute", note)


def test_candidates_carry_each_seeds_results_at_its_own_decisions(repository: Repository) -> None:
    trained(repository, "a", seeds=3, score=0.25)
    study = repository.open_study("s")
    add_trial(
        repository, study.id, "b", state="infeasible", cause="parameters", certificate={"feasible": False}
    )
    first, second = repository.candidates(study.id)
    assert (first.number, first.hash, first.state, first.family) == (0, digest("a"), "done", "attention")
    assert [s.seed for s in first.in_state("done")] == [0, 1, 2]
    assert [set(s.points) for s in first.seeds] == [{"own"}] * 3
    assert [s.points["own"].evaluations[0].score for s in first.seeds] == [0.25, 1.25, 2.25]
    assert [s.points["own"].measured("decode_tokens_per_s")[0].median for s in first.seeds] == [
        100.0,
        101.0,
        102.0,
    ]
    assert first.seeds[0].points["own"].ledger == {"x": 1}
    assert first.ledger == {"parameters": 1000}
    assert (second.state, second.cause, second.seeds) == ("infeasible", "parameters", ())
    assert second.certificate == {"feasible": False}


def test_candidates_can_be_light_and_chosen(repository: Repository) -> None:
    trained(repository, "a")
    study = repository.open_study("s")
    add_trial(repository, study.id, "b", state="infeasible")
    (light,) = repository.candidates(study.id, states=["done"], points=None, details=False)
    assert (light.ledger, light.certificate, light.draws) == (None, None, {"layers": 2})
    assert set(light.seeds[0].points) == {"own", "forced:0.4"}
    own = light.seeds[0].points["own"]
    assert own.ledger is None
    assert own.evaluations[0].score == 0.5


def test_studies_do_not_mix(repository: Repository) -> None:
    trained(repository, "a")
    other = add_run(repository, "t", "a")
    assert [len(c.seeds[0].points) for c in repository.candidates(other.study_id)] == [0]


def test_the_number_of_statements_does_not_grow_with_the_study(repository: Repository) -> None:
    counts = []
    for name, seeds in (("a", 1), ("b", 2), ("c", 2)):
        trained(repository, name, seeds)
        study = repository.open_study("s")
        with counting(repository) as count:
            repository.candidates(study.id)
            repository.trial_detail(study.id, 0)
        counts.append(count())
    assert len(set(counts)) == 1
    assert counts[0] <= 12


def test_a_detail_holds_everything_of_one_trial(repository: Repository) -> None:
    trained(repository, "z")
    number = trained(repository, "a", seeds=2)
    study = repository.open_study("s")
    detail = repository.trial_detail(study.id, number)
    assert detail.trial.genome == {"vocab": 64, "name": "a"}
    assert [r.run.key for r in detail.runs] == ["s/1/0", "s/1/1"]
    assert [set(r.points) for r in detail.runs] == [{"own", "forced:0.4"}] * 2
    assert [[r.tokens for r in d.rungs] for d in detail.runs] == [[100, 200]] * 2


def test_the_rungs_of_a_study_come_in_one_statement(repository: Repository) -> None:
    trained(repository, "a", seeds=2)
    trained(repository, "b", score=0.75)
    waiting = add_run(repository, "s", "c")
    other = add_run(repository, "t", "d")
    repository.record_rung(other.id, running(repository, other), rung=0, tokens=7, metrics={})
    with counting(repository) as count:
        found = repository.study_rungs(waiting.study_id)
    assert count() == 1
    assert [[(r.rung, r.metrics["accuracy"]) for r in rungs] for rungs in found.values()] == [
        [(0, 0.5), (1, 0.5)],
        [(0, 0.5), (1, 0.5)],
        [(0, 0.75), (1, 0.75)],
    ]


@pytest.mark.parametrize(
    ("points", "at_most", "kept"),
    [
        (10, None, 10),
        (10, 10, 10),
        (10, 50, 10),
        (100, 10, 11),
        (101, 10, 11),
        (1, 1, 1),
        (7, 3, 3),
        (0, 5, 0),
    ],
)
def test_a_curve_is_thinned_evenly_and_keeps_its_ends(
    repository: Repository, points: int, at_most: int | None, kept: int
) -> None:
    run = add_run(repository)
    repository.record_curve(run.id, running(repository, run), curve(0, points))
    steps = [p.step for p in repository.curve(run.id, at_most=at_most)]
    assert len(steps) == kept
    assert steps == sorted(set(steps))
    if points:
        assert (steps[0], steps[-1]) == (0, points - 1)
        assert len({b - a for a, b in pairwise(steps[:-1])}) <= 1


def test_curves_of_several_runs_come_in_one_statement(repository: Repository) -> None:
    runs = [add_run(repository, "s", name) for name in "abc"]
    for i, run in enumerate(runs[:2]):
        repository.record_curve(run.id, running(repository, run), curve(0, 5 + i))
    with counting(repository) as count:
        found = repository.curves([r.id for r in runs], at_most=3)
    assert count() == 1
    assert {k: [p.step for p in v] for k, v in found.items()} == {
        runs[0].id: [0, 2, 4],
        runs[1].id: [0, 2, 4, 5],
        runs[2].id: [],
    }


def test_points_are_found_by_the_beginning_of_their_name(repository: Repository) -> None:
    number = trained(repository, "a", seeds=2)
    study = repository.open_study("s")
    found = repository.points_like(study.id, "forced:")
    assert list(found) == [f"s/{number}/0", f"s/{number}/1"]
    assert [point.name for points in found.values() for point in points] == ["forced:0.4"] * 2
    assert found[f"s/{number}/0"][0].measured("decode_tokens_per_s")[0].median == 50.0
    # No wild card of LIKE stands for anything.
    assert repository.points_like(study.id, "f%") == {}
