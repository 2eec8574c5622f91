import threading
from datetime import UTC, datetime, timedelta

import pytest

from crossbreed.core.errors import ConfigError, StorageError, UnknownName
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow
from crossbreed.storage.runs import MAX_ATTEMPTS
from crossbreed.storage.states import ENDED, following
from tests.storage.material import SECONDS, add_run, add_trial, curve, leased, running


def after(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_adding_a_seed_twice_is_one_run(repository: Repository) -> None:
    run = add_run(repository, seed=3)
    again = repository.add_run(run.trial_id, 3, recipe={"lr": 9.0}, identities={})
    assert again == run
    assert (run.key, run.state, run.recipe) == ("study/0/3", "queued", {"lr": 1e-3})


def test_a_run_is_leased_to_one_worker(repository: Repository) -> None:
    run = add_run(repository)
    lease = leased(repository, run)
    assert repository.lease_run(run.id, "worker-1", seconds=SECONDS) is None
    found = repository.run(run.id)
    assert (found.state, found.lease, found.worker, found.attempts) == ("leased", lease, "worker-0", 1)


def test_runs_are_found_by_key(repository: Repository) -> None:
    run = add_run(repository, "quick", seed=2)
    assert repository.run_by_key("quick/0/2") == run
    with pytest.raises(ConfigError, match="study/number/seed"):
        repository.run_by_key("quick/0")
    with pytest.raises(UnknownName, match="did you mean 'quick'"):
        repository.run_by_key("quck/0/2")
    with pytest.raises(UnknownName, match="did you mean 'quick/0/2'"):
        repository.run_by_key("quick/0/1")


def test_an_expired_lease_is_queued_again_and_its_late_records_refused(repository: Repository) -> None:
    run = add_run(repository)
    stale = running(repository, run)
    assert repository.requeue_expired(run.study_id) == []
    (taken,) = repository.requeue_expired(run.study_id, at=after(SECONDS + 1))
    assert (taken.state, taken.attempts, taken.lease) == ("queued", 1, None)
    assert not repository.record_curve(run.id, stale, curve(0, 4))
    assert not repository.renew_lease(run.id, stale, seconds=SECONDS)
    assert not repository.release_run(run.id, stale)
    fresh = running(repository, run)
    assert not repository.record_finished(run.id, stale, "failed", cause="late")
    assert not repository.record_curve(run.id, stale, curve(0, 4))
    assert repository.record_curve(run.id, fresh, curve(0, 2))
    assert [p.step for p in repository.curve(run.id)] == [0, 1]


def test_a_renewed_lease_does_not_expire(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    assert repository.renew_lease(run.id, lease, seconds=10 * SECONDS)
    assert repository.requeue_expired(run.study_id, at=after(2 * SECONDS)) == []


def test_a_run_that_keeps_losing_its_worker_is_lost(repository: Repository) -> None:
    run = add_run(repository)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        running(repository, run)
        (taken,) = repository.requeue_expired(run.study_id, everything=True)
        assert taken.attempts == attempt
    assert taken.state == "lost"
    assert taken.cause is not None
    assert "worker-0" in taken.cause
    assert repository.trial(run.study_id, 0).state == "lost"
    assert repository.lease_run(run.id, "w", seconds=SECONDS) is None
    repository.set_run_state(run.id, "queued")
    assert leased(repository, run)


def test_orderly_returns_do_not_use_up_attempts(repository: Repository) -> None:
    run = add_run(repository)
    for _ in range(2 * MAX_ATTEMPTS):
        lease = running(repository, run)
        assert repository.release_run(run.id, lease)
        # The last records may still be under way when the lease comes back.
        assert repository.record_curve(run.id, lease, curve(0, 1))
    assert repository.run(run.id).state == "queued"
    lease = running(repository, run)
    assert repository.record_finished(run.id, lease, "preempted")
    assert repository.run(run.id).attempts == 0
    assert leased(repository, run)


def test_only_leased_runs_of_this_study_are_taken(repository: Repository) -> None:
    here, queued = add_run(repository, "a", "x"), add_run(repository, "a", "y")
    elsewhere = add_run(repository, "b", "x")
    for run in (here, elsewhere):
        running(repository, run)
    assert [r.id for r in repository.requeue_expired(here.study_id, everything=True)] == [here.id]
    assert repository.run(elsewhere.id).state == "running"
    assert repository.run(queued.id).attempts == 0


def test_a_trial_follows_its_tuning_runs_only(repository: Repository) -> None:
    first = add_run(repository, seed=0)
    lease = running(repository, first)
    assert repository.trial(first.study_id, 0).state == "running"
    repository.record_finished(first.id, lease, "done")
    second = repository.add_run(first.trial_id, 1, recipe={}, identities={}, role="report")
    assert repository.trial(first.study_id, 0).state == "done"
    repository.record_finished(second.id, running(repository, second), "diverged", cause="loss at step 7")
    assert repository.trial(first.study_id, 0).state == "done"
    assert repository.run_states(first.study_id) == {"done": 1, "diverged": 1}
    assert [r.seed for r in repository.runs(first.study_id, ["diverged"])] == [1]


def test_a_trial_has_the_state_of_the_setting_that_went_furthest(repository: Repository) -> None:
    runs = [add_run(repository, seed=0)]
    runs += [repository.add_run(runs[0].trial_id, n, recipe={"lr": n}, identities={}) for n in (1, 2)]

    def end(run: RunRow, state: str, cause: str = "") -> str:
        repository.record_finished(run.id, running(repository, run), state, cause=cause)
        return repository.trial(run.study_id, 0).state

    assert end(runs[0], "diverged", "loss at step 7") == "queued"
    repository.set_run_state(runs[1].id, "pruned", cause="beaten")
    assert repository.trial(runs[0].study_id, 0).state == "queued"
    assert end(runs[2], "diverged", "loss at step 9") == "pruned"
    assert repository.trial(runs[0].study_id, 0).cause == "beaten"


def test_settings_that_went_equally_far_are_told_by_the_first_of_them(repository: Repository) -> None:
    first = add_run(repository, seed=5)
    second = repository.add_run(first.trial_id, 1, recipe={}, identities={})
    for run, state in ((second, "diverged"), (first, "failed")):
        repository.record_finished(run.id, running(repository, run), state, cause=f"{run.seed}")
    found = repository.trial(first.study_id, 0)
    assert (found.state, found.cause) == ("failed", "5")


def test_a_trial_and_its_run_are_read_as_they_have_become_in_the_same_batch(repository: Repository) -> None:
    study = repository.create_study("study", {"schema": 1}).id
    with repository.batch():
        trial = add_trial(repository, study, state="infeasible", cause="before it had runs")
        kept = repository.trial(study, 0)
        run = repository.add_run(trial.id, 0, recipe={}, identities={})
        assert (kept.state, repository.trial(study, 0).state) == ("infeasible", "queued")
        lease = running(repository, run)
        before = repository.run(run.id)
        assert (before.state, repository.trial(study, 0).state) == ("running", "running")
        repository.record_rung(run.id, lease, rung=0, tokens=1, metrics={})
        repository.record_curve(run.id, lease, curve(0, 2))
        repository.record_finished(run.id, lease, "failed", cause="a rule")
        inside, found = repository.run(run.id), repository.trial(study, 0)
        assert (inside.state, inside.rungs_done, found.state, found.cause) == (
            "failed",
            1,
            "failed",
            "a rule",
        )
    assert (repository.run(run.id), repository.trial(study, 0)) == (inside, found)


def test_a_refused_end_leaves_the_count_of_lost_leases(repository: Repository) -> None:
    run = add_run(repository)
    lease = running(repository, run)
    with repository.batch(), pytest.raises(StorageError, match="cannot become"):
        repository.record_finished(run.id, lease, "infeasible")
    found = repository.run(run.id)
    assert (found.state, found.attempts) == ("running", 1)


def test_a_lease_lost_since_a_batch_read_the_run_is_stale_in_it(migrated_postgres: str) -> None:
    with Repository.open(migrated_postgres) as repository:
        run = add_run(repository, "lost-meanwhile")
        lease = running(repository, run)

        def lose() -> None:
            assert repository.lose_run(run.id, lease, "gone")

        with repository.batch():
            assert repository.run(run.id).lease == lease
            other = threading.Thread(target=lose)
            other.start()
            other.join(30)
            assert not repository.record_curve(run.id, lease, curve(0, 1))
            assert not repository.record_finished(run.id, lease, "done")
        assert repository.run(run.id).state == "queued"


def test_a_setting_is_read_with_its_learning_rate(repository: Repository) -> None:
    run = add_run(repository)
    repository.add_run(run.trial_id, 1, recipe={"lr": 0.25}, identities={}, role="report")
    repository.add_run(run.trial_id, 2, recipe={}, identities={}, role="report")
    (row,) = repository.candidates(run.study_id, details=False)
    assert [(s.role, s.lr) for s in row.seeds] == [("tune", 1e-3), ("report", 0.25), ("report", None)]


def test_times_follow_the_state(repository: Repository) -> None:
    run = add_run(repository)
    assert (run.started_at, run.finished_at) == (None, None)
    lease = running(repository, run)
    started = repository.run(run.id).started_at
    repository.release_run(run.id, lease)
    lease = running(repository, run)
    repository.record_finished(run.id, lease, "done")
    ended = repository.run(run.id)
    assert started is not None
    assert ended.finished_at is not None
    assert ended.started_at == started <= ended.finished_at
    assert ended.lease_expires_at is None


def test_what_has_ended_stays_ended(repository: Repository) -> None:
    run = add_run(repository)
    repository.record_finished(run.id, running(repository, run), "diverged", cause="NaN", traceback="line 1")
    for state in ("queued", "running", "done"):
        with pytest.raises(StorageError, match=f"study/0/0 is 'diverged' and cannot become '{state}'"):
            repository.set_run_state(run.id, state)
    found = repository.run(run.id)
    assert (found.state, found.cause, found.traceback) == ("diverged", "NaN", "line 1")


def test_pruning_a_queued_run_is_legal(repository: Repository) -> None:
    run = add_run(repository)
    repository.set_run_state(run.id, "pruned", cause="beaten")
    assert repository.trial(run.study_id, 0).cause == "beaten"


def test_nothing_follows_an_end_but_a_lost_run_by_hand_and_a_pruned_one_whose_better_fell() -> None:
    assert {old: following(old) for old in ENDED} == {
        **{old: frozenset() for old in ENDED},
        "lost": frozenset({"queued"}),
        "pruned": frozenset({"queued"}),
    }


def test_a_misspelt_state_is_refused(sqlite_repository: Repository) -> None:
    run = add_run(sqlite_repository)
    with pytest.raises(UnknownName, match="'out_of_memory'"):
        sqlite_repository.set_run_state(run.id, "out of memory")
