import math
from dataclasses import replace

import pytest

from crossbreed.core.errors import ConfigError, NotFinite, StorageError
from crossbreed.storage import Repository
from tests.storage.material import add_run, curve, digest, running, speed

FOUND = {"decisions": {"sites": [{"site": "0.0.0.gate", "shares": [0.5, 0.5]}]}, "agreement": {"flips": 0}}


def test_records_sent_again_change_nothing(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)

    def report() -> list[bool]:
        return [
            repository.record_started(run.id, lease, {"torch": "2"}),
            repository.record_curve(run.id, lease, curve(0, 5)),
            repository.record_rung(run.id, lease, rung=0, tokens=160, metrics={"accuracy": 0.5}),
            repository.record_profile(run.id, lease, "own", [speed(100.0)], rates={"0.0.0.gate": (0.5, 0.5)}),
            repository.record_evaluation(
                run.id, lease, "own", tokens=32, metrics={"accuracy": 0.5}, score=0.5, rows=64
            ),
            repository.record_artefact(
                run.id,
                lease,
                kind="checkpoint",
                path="s/0/0/rung-0.safetensors",
                sha256=digest("c"),
                bytes=2**40,
            ),
            repository.record_analytics(run.id, lease, "own", FOUND, version=1, tokens=160, rows=64),
            repository.record_finished(run.id, lease, "done"),
        ]

    assert report() == [True] * 8
    once = repository.trial_detail(run.study_id, 0)
    assert report() == [True] * 8
    twice = repository.trial_detail(run.study_id, 0)
    assert (once.runs[0].rungs, once.runs[0].points, once.runs[0].artefacts) == (
        twice.runs[0].rungs,
        twice.runs[0].points,
        twice.runs[0].artefacts,
    )
    assert twice.runs[0].run.state == "done"
    assert twice.runs[0].run.rungs_done == 1
    assert [len(p.measurements) for p in twice.runs[0].points.values()] == [1]
    assert twice.runs[0].artefacts[0].bytes == 2**40
    assert len(repository.curve(run.id)) == 5
    assert {kind: row.payload for kind, row in repository.analytics(run.id).items()} == FOUND


def test_every_kind_of_record_refuses_a_stale_lease(repository: Repository) -> None:
    run = add_run(repository)
    stale = running(repository, run)
    repository.requeue_expired(run.study_id, everything=True)
    running(repository, run)
    before = repository.trial_detail(run.study_id, 0)
    assert [
        repository.record_started(run.id, stale, {"torch": "late"}),
        repository.record_curve(run.id, stale, curve(0, 5)),
        repository.record_rung(run.id, stale, rung=0, tokens=1, metrics={}),
        repository.record_profile(run.id, stale, "own", [speed(1.0)]),
        repository.record_evaluation(run.id, stale, "own", tokens=32, metrics={}, score=1.0, rows=1),
        repository.record_artefact(run.id, stale, kind="log", path="x", sha256=digest("x"), bytes=1),
        repository.record_analytics(run.id, stale, "own", FOUND, version=1, tokens=1, rows=1),
        repository.record_finished(run.id, stale, "failed", cause="late"),
    ] == [False] * 8
    assert repository.trial_detail(run.study_id, 0) == before
    assert repository.curve(run.id) == []


def test_steps_trained_again_replace_the_earlier_ones(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    repository.record_curve(run.id, lease, curve(0, 6, loss=3.0))
    repository.requeue_expired(run.study_id, everything=True)
    lease = running(repository, run)
    repository.record_curve(run.id, lease, curve(4, 8, loss=2.0))
    assert [(p.step, p.loss_nats) for p in repository.curve(run.id)] == [
        *((i, 3.0) for i in range(4)),
        *((i, 2.0) for i in range(4, 8)),
    ]
    assert repository.curve(run.id)[0].aux == {"router": 0.5}


def test_a_rung_done_again_under_a_newer_lease_replaces_the_lost_one(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    for rung, tokens in enumerate((100, 300)):
        repository.record_rung(run.id, lease, rung=rung, tokens=tokens, metrics={}, checkpoint="a")
    # The same lease cannot change what it reported: the record was merely sent again.
    repository.record_rung(run.id, lease, rung=1, tokens=999, metrics={}, checkpoint="b")
    assert [(r.rung, r.tokens, r.checkpoint) for r in repository.rungs(run.id)] == [
        (0, 100, "a"),
        (1, 300, "a"),
    ]
    repository.requeue_expired(run.study_id, everything=True)
    lease = running(repository, run)
    repository.record_rung(run.id, lease, rung=0, tokens=100, metrics={"accuracy": 0.25}, checkpoint="c")
    assert [(r.rung, r.checkpoint, r.metrics) for r in repository.rungs(run.id)] == [
        (0, "c", {"accuracy": 0.25}),
        (1, "a", {}),
    ]
    assert repository.run(run.id).rungs_done == 2


def test_a_diverged_curve_is_stored_without_its_nan(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    assert repository.record_curve(
        run.id, lease, [*curve(0, 1), *curve(1, 2, math.nan), *curve(2, 3, math.inf)]
    )
    assert [p.loss_nats for p in repository.curve(run.id)] == [2.0, None, None]


@pytest.mark.parametrize("bad", [math.inf, math.nan, 0.0, -1.0])
@pytest.mark.parametrize("field", ["median", "q1", "q3"])
def test_a_speed_that_no_clock_can_show_is_refused(
    sqlite_repository: Repository, field: str, bad: float
) -> None:
    run = add_run(sqlite_repository)
    lease = running(sqlite_repository, run)
    with pytest.raises(NotFinite, match=f"decode_tokens_per_s at 'own' has {field}"):
        sqlite_repository.record_profile(
            run.id, lease, "own", [speed(5.0), replace(speed(5.0), **{field: bad})]
        )
    assert sqlite_repository.trial_detail(run.study_id, 0).runs[0].points == {}


def test_measurements_of_different_keys_stand_side_by_side(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    kinds = [speed(10.0), speed(20.0, tokens=64), speed(30.0, device="cuda"), speed(40.0, compiled=True)]
    repository.record_profile(run.id, lease, "own", [*kinds, speed(50.0, "prefill_tokens_per_s")])
    repository.record_profile(run.id, lease, "own", [speed(11.0)])
    point = repository.trial_detail(run.study_id, 0).runs[0].points["own"]
    assert sorted(m.median for m in point.measured("decode_tokens_per_s")) == [11.0, 20.0, 30.0, 40.0]
    assert len({m.key() for m in point.measurements}) == 5


def test_where_the_loss_comes_from_is_kept_with_an_evaluation_and_stored_again_replaces_it(
    repository: Repository,
) -> None:
    run = add_run(repository, seed=3)
    lease = running(repository, run)
    about = {"tokens": 64, "metrics": {}, "score": 0.5, "rows": 4}
    repository.record_evaluation(run.id, lease, "own", **about)
    assert repository.breakdowns(run.study_id) == []
    for nats in (1.0, 2.0):
        parts = {"version": 1, "classes": [{"class": "query", "labelled": 4, "right": 3, "loss_nats": nats}]}
        repository.record_evaluation(run.id, lease, "own", **about, breakdown=parts)
    (found,) = repository.breakdowns(run.study_id)
    assert (found.number, found.seed, found.point, found.tokens) == (0, 3, "own", 64)
    assert found.breakdown["classes"][0]["loss_nats"] == 2.0


def test_profile_and_evaluation_meet_at_one_operating_point(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    repository.record_profile(run.id, lease, "own", [speed(10.0)], settings={"kappa": 0.2})
    repository.record_evaluation(
        run.id,
        lease,
        "own",
        tokens=64,
        metrics={"accuracy": 0.75, "loss": math.nan},
        score=0.75,
        rows=128,
        unscored_rows=2,
        tolerance=1e-4,
        rates={"0.0.0.gate": (0.7, 0.3)},
        ledger={"parameters": 5},
        certificate={"rates": "realised"},
    )
    repository.record_profile(run.id, lease, "own", [speed(12.0)])
    point = repository.trial_detail(run.study_id, 0).runs[0].points["own"]
    assert point.settings == {"kappa": 0.2}
    assert point.rates == {"0.0.0.gate": [0.7, 0.3]}
    assert (point.ledger, point.certificate) == ({"parameters": 5}, {"rates": "realised"})
    (evaluation,) = point.evaluations
    assert evaluation.tolerance == 1e-4
    assert (evaluation.score, evaluation.rows, evaluation.unscored_rows) == (0.75, 128, 2)
    assert evaluation.metrics == {"accuracy": 0.75, "loss": None}


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_an_artefact_stays_inside_its_folder(sqlite_repository: Repository, path: str) -> None:
    run = add_run(sqlite_repository)
    lease = running(sqlite_repository, run)
    with pytest.raises(ConfigError, match="relative to its place and inside it"):
        sqlite_repository.record_artefact(run.id, lease, kind="log", path=path, sha256=digest(""), bytes=0)


def test_a_run_cannot_end_twice_differently(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    assert repository.record_finished(run.id, lease, "done")
    with pytest.raises(StorageError, match="ended as 'done'"):
        repository.record_finished(run.id, lease, "failed")


def test_analytics_are_kept_by_run_point_and_kind_and_replaced_as_a_whole(repository: Repository) -> None:
    run, other = add_run(repository), add_run(repository, name="b")
    for each in (run, other):
        lease = running(repository, each)
        assert repository.record_analytics(each.id, lease, "own", FOUND, version=1, tokens=160, rows=64)
    lease = str(repository.run(run.id).lease)
    repository.record_analytics(
        run.id, lease, "forced:0.4", {"agreement": {"x": math.nan}}, version=1, tokens=160, rows=8
    )
    repository.record_analytics(
        run.id, lease, "own", {"experts": {"pools": []}}, version=2, tokens=2**40, rows=512
    )
    (row,) = repository.analytics(run.id).values()
    assert (row.kind, row.version, row.tokens, row.rows) == ("experts", 2, 2**40, 512)
    assert row.payload == {"pools": []}
    assert repository.analytics(run.id, "forced:0.4")["agreement"].payload == {"x": None}
    assert repository.analytics(run.id, "forced:1") == {}
    assert repository.analytics(other.id).keys() == FOUND.keys()


def test_rates_of_an_evaluation_are_not_replaced_by_those_of_a_few_timed_tokens(
    repository: Repository,
) -> None:
    run = add_run(repository)
    lease = running(repository, run)

    def rates() -> object:
        return repository.trial_detail(run.study_id, 0).runs[0].points["own"].rates

    repository.record_profile(run.id, lease, "own", [speed(10.0)], rates={"mode": (0.9, 0.1)})
    assert rates() == {"mode": [0.9, 0.1]}
    about = {"tokens": 32, "metrics": {}, "score": 1.0, "rows": 1}
    repository.record_evaluation(run.id, lease, "own", rates={"mode": (0.75, 0.25)}, **about)
    repository.record_profile(run.id, lease, "own", [speed(10.0)], rates={"mode": (0.8, 0.2)})
    assert rates() == {"mode": [0.75, 0.25]}
