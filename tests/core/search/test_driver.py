"""The driver over a real database, with workers whose results are written down: order, states, rungs, recovery."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.errors import PluginError
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Evaluated, Finished, Measurement, Profiled, Record, Waiting
from crossbreed.core.ledger import Ledger
from crossbreed.core.search.driver import DriverOptions
from crossbreed.core.search.progress import Progress
from crossbreed.core.trust import Trust
from crossbreed.storage import Repository
from tests.core.search import material
from tests.core.search.material import (
    Scripted,
    by_number,
    candidates,
    drive,
    plugin,
    records_of,
    setting,
    width_of,
)


def test_a_search_trains_starts_then_samples_and_confirms_its_front(database: Path, toys: Registry) -> None:
    executor = Scripted()
    end, repository, study = drive(database, setting(toys, search={"seeds": 3}), executor)
    rows = by_number(repository, study)
    assert end == "done"
    assert executor.ended
    assert [r.origin for r in rows.values()] == ["reference", "start", "start", "sampler", "sampler"]
    assert [r.family for r in rows.values()][:3] == ["width 32", "width 8", "width 16"]
    assert {s.state for r in rows.values() for s in r.seeds} == {"done"}
    front = [c for c in candidates(repository, study) if c.on_front]
    # Wider is better and slower, so every width is on the front, with three fresh seeds and intervals.
    assert {c.row.number for c in front} == set(rows)
    assert all(len(c.done) == 3 and c.confirmed and c.intervals["score"] for c in front)
    assert all([s.seed for s in c.done] == [1, 2, 3] for c in front)
    assert repository.driver(study) is None


def test_profiles_run_alone_and_in_a_row(database: Path, toys: Registry) -> None:
    executor = Scripted(slots=3)
    drive(database, setting(toys, search={"trials": 5, "profile_after": 2}), executor)
    for jobs in executor.together:
        assert len(jobs) == 1 or not any("profile" in job.phases for job in jobs)
    kinds = "".join("p" if "profile" in job.phases else "t" for job in executor.log)
    assert "pp" in kinds
    assert kinds.count("p") == kinds.count("t")


def test_waiting_for_a_device_is_shown_and_kept_as_an_event(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "device cpu is held by process 7 (other/3/0); timing waits until it is free"

    def waits(job: Job, result: material.Result) -> list[Record]:
        first, *rest = records_of(job, result)
        return [first, Waiting(why), *rest] if "profile" in job.phases else [first, *rest]

    monkeypatch.setattr(material, "records_of", waits)
    monkeypatch.setattr("crossbreed.core.search.driver.PROGRESS_S", 0.0)
    shown: list[Progress] = []
    _, repository, study = drive(database, setting(toys), Scripted(), DriverOptions(on_progress=shown.append))
    events = [e for e in repository.events(study, limit=10_000) if e.kind == "waiting"]
    assert {e.payload["cause"] for e in events} == {why}
    assert {e.payload["trial"] for e in events} == set(by_number(repository, study))
    assert any(p.waiting == (why,) for p in shown)
    assert shown[-1].waiting == ()


def test_memory_is_measured_once_a_candidate_and_is_no_speed(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_memory(job: Job, result: material.Result) -> list[Record]:
        first, *rest = records_of(job, result)
        if "train" not in job.phases or not job.memory:
            return [first, *rest]
        size = 1e6 * width_of(job)
        peak = Measurement(
            "training_peak_allocated_bytes", "bytes", "train", 8, 16, "float32", "test", "best", False, size, size, size, 1
        )  # fmt: skip
        return [first, Profiled("own", {}, (peak,)), *rest]

    monkeypatch.setattr(material, "records_of", with_memory)
    executor = Scripted()
    _, repository, study = drive(database, setting(toys), executor)
    assert all(job.memory is (job.seed == 0) for job in executor.log)
    for row in by_number(repository, study).values():
        assert row.state == "done"
        for seed in row.seeds:
            own = seed.points["own"]
            # The run was trained and timed all the same.
            assert own.evaluations
            assert {m.metric for m in own.speeds} == {"prefill_tokens_per_s", "decode_tokens_per_s"}
            assert len(own.measured("training_peak_allocated_bytes")) == (seed.seed == 0)


def test_dominated_candidates_are_not_run_again(database: Path, toys: Registry) -> None:
    def best_is_32(job: Job) -> tuple[float, float]:
        return (0.9, 100.0) if width_of(job) == 32 else (0.1 + 0.001 * width_of(job), 50.0)

    _, repository, study = drive(database, setting(toys, search={"seeds": 3}), Scripted(best_is_32))
    rows = by_number(repository, study)
    seeds = {r.number: len(r.seeds) for r in rows.values()}
    assert seeds == {0: 4, 1: 1, 2: 1, 3: 1, 4: 1}


def test_whose_plugins_may_run_goes_with_every_job(database: Path, toys: Registry) -> None:
    executor, careful = Scripted(), Trust(allow=("one", "two"))
    drive(database, setting(replace(toys, trust=careful)), executor)
    assert executor.log
    assert {job.trust for job in executor.log} == {careful}


def test_an_infeasible_candidate_is_stored_with_its_reason_and_not_trained(
    database: Path, toys: Registry
) -> None:
    tight = setting(
        toys, budget={"match": {"non_embedding_parameters": "0.01%"}, "cap": {"memory_bytes": "0.01%"}}
    )
    _, repository, study = drive(database, tight, Scripted())
    rows = by_number(repository, study)
    # The starting points are half and a quarter as wide as the reference, and may at most double.
    assert rows[1].state == "infeasible"
    assert rows[1].cause is not None
    assert rows[1].certificate is not None
    assert not rows[1].certificate["feasible"]
    assert rows[1].seeds == ()
    assert rows[0].state == "done"


def test_a_failing_run_is_a_record_and_the_search_goes_on(database: Path, toys: Registry) -> None:
    executor = Scripted()
    bad = Finished("failed", "exception: RuntimeError: boom", "Traceback ...")
    executor.fail = lambda job: bad if width_of(job) == 8 else None
    end, repository, study = drive(database, setting(toys), executor)
    rows = by_number(repository, study)
    assert end == "done"
    assert (rows[1].state, rows[1].cause) == ("failed", "exception: RuntimeError: boom")
    run = repository.run_by_key("tiny/1/0")
    assert run.traceback == "Traceback ..."
    assert not next(c for c in candidates(repository, study) if c.row.number == 1).eligible
    assert rows[2].state == "done"


@pytest.mark.parametrize("state", ["diverged", "out_of_memory"])
def test_other_endings_keep_their_state_and_are_not_run_again(
    database: Path, toys: Registry, state: Any
) -> None:
    executor = Scripted()
    executor.fail = lambda job: Finished(state, "why") if width_of(job) == 16 else None
    _, repository, study = drive(database, setting(toys), executor)
    assert by_number(repository, study)[2].state == state
    assert sum(width_of(job) == 16 for job in executor.log) == 1


def test_a_candidate_whose_cost_raises_is_a_record(database: Path, toys: Registry) -> None:
    study_setting = setting(toys, space={"params": {"odd_heads": 2, "starts": [8, 24, 16]}})
    estimate = study_setting.cost_model.estimate

    def raises_for_two_heads(architecture: Architecture, *rest: Any, **named: Any) -> Ledger:
        if architecture.sublayers()[0][1].params["heads"] == 2:
            raise ZeroDivisionError("no cost for 2 heads")
        return estimate(architecture, *rest, **named)

    study_setting.cost_model.estimate = raises_for_two_heads  # type: ignore[method-assign]
    end, repository, study = drive(database, study_setting, Scripted())
    row = by_number(repository, study)[2]
    assert end == "done"
    assert (row.state, row.cause) == ("failed", "exception: ZeroDivisionError: no cost for 2 heads")
    event = next(e for e in repository.events(study) if e.kind == "proposal_failed")
    assert event.payload["trial"] == 2
    assert "ZeroDivisionError" in event.payload["traceback"]


def test_a_candidate_with_an_illegal_setting_is_a_record(database: Path, toys: Registry) -> None:
    study_setting = setting(toys, space={"params": {"odd_heads": -1, "starts": [24, 8]}})
    _, repository, study = drive(database, study_setting, Scripted())
    row = by_number(repository, study)[1]
    assert row.state == "failed"
    assert "heads" in str(row.cause)


def test_a_space_that_raises_is_named(database: Path) -> None:
    broken = material.TOY.replace(
        "width = draw.choose", "raise KeyError('lost')\n        width = draw.choose"
    )
    study_setting = setting(material.Host.load([plugin("toy.py", broken)], third_party=False))
    with pytest.raises(PluginError, match=r"search space Toy raised KeyError while proposing: 'lost'"):
        drive(database, study_setting, Scripted())


def test_off_budget_is_measured_and_shown_but_never_on_the_front(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(job: Job, result: Any) -> list[Record]:
        found = records_of(job, result)
        if width_of(job) != 8:
            return found
        return [material.off_budget(r) if isinstance(r, Evaluated) else r for r in found]

    monkeypatch.setattr(material, "records_of", spoiled)
    _, repository, study = drive(database, setting(toys), Scripted())
    found = {c.row.number: c for c in candidates(repository, study)}
    assert found[1].row.state == "off_budget"
    assert "+150.00%" in str(found[1].row.cause)
    assert found[1].means["decode_tokens_per_s"] == pytest.approx(500.0)
    assert not found[1].on_front
    assert found[2].on_front


def test_postgresql_holds_a_study_as_well(
    postgres_url: str, toys: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    end, repository, study = drive(postgres_url, setting(toys), Scripted())
    with repository:
        assert end == "done"
        assert set(repository.run_states(study)) == {"done"}
        assert sum(c.on_front for c in candidates(repository, study)) == 5


def test_rungs_promote_the_best_and_prune_the_rest(database: Path, toys: Registry) -> None:
    executor = Scripted()
    study_setting = setting(
        toys,
        train={"tokens": 4608, "rungs": 2, "reduction": 3.0},
        search={"trials": 5, "seeds": 1},
        objectives={"score": "max"},
    )
    end, repository, study = drive(database, study_setting, executor)
    rows = by_number(repository, study)
    states = Counter(r.state for r in rows.values())
    assert end == "done"
    # Decided as results come in, so an early best may go on beside the final best third.
    assert set(states) == {"done", "pruned"}
    assert 2 <= states["done"] <= 3
    widths = {int(r.family.split()[1]): r.state for r in rows.values()}
    assert all(widths[w] == "done" for w in sorted(widths)[-2:])
    pruned = next(r for r in rows.values() if r.state == "pruned")
    assert pruned.cause == "not among the best 1/3 of rung 0"
    assert pruned.seeds[0].rungs_done == 1
    lengths = {job.rungs for job in executor.log if "train" in job.phases}
    assert lengths == {(1536,), (1536, 4608)}


def test_a_small_space_ends_in_more_seeds_not_in_a_loop(database: Path, toys: Registry) -> None:
    small = setting(
        toys,
        space={"params": {"widths": [8, 16], "starts": [8, 16]}},
        search={"trials": 5, "seeds": 1, "repeats": 3},
    )
    executor = Scripted()
    end, repository, study = drive(database, small, executor)
    rows = by_number(repository, study)
    assert end == "done"
    assert len(rows) == len({row.hash for row in rows.values()}) == 3
    trained = [(job.number, job.seed) for job in executor.log if "train" in job.phases]
    assert len(trained) == len(set(trained))
    repeats = [e.payload for e in repository.events(study) if e.kind == "repeat"]
    assert len(repeats) == 3
    extra = Counter(p["trial"] for p in repeats)
    fresh = {n: [s.role for s in r.seeds].count("report") for n, r in rows.items()}
    # Every member has one fresh seed, and one more for every time it was proposed again.
    assert all(count >= extra[n] for n, count in fresh.items())
    assert sum(fresh.values()) >= 3
    # Run again, it remembers that it had nothing new to propose.
    again = Scripted()
    assert drive(database, small, again)[0] == "done"
    assert again.log == []
    assert not again.started


def test_a_study_grows_when_run_again_with_more_trials(database: Path, toys: Registry) -> None:
    drive(database, setting(toys), Scripted())
    executor = Scripted()
    grown = setting(toys, search={"trials": 6}, space={"params": {"widths": list(range(8, 96, 8))}})
    _, repository, study = drive(database, grown, executor)
    assert list(by_number(repository, study)) == [0, 1, 2, 3, 4, 5, 6]
    assert {job.number for job in executor.log} <= {5, 6}


def test_progress_counts_what_happens(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbreed.core.search.driver.PROGRESS_S", 0.0)
    seen: list[Progress] = []
    drive(database, setting(toys), Scripted(), DriverOptions(on_progress=seen.append))
    assert {p.activity for p in seen} == {"training", "profiling"}
    assert [p.trials for p in seen] == sorted(p.trials for p in seen)
    assert seen[-1].trials == seen[-1].trial_limit == 4
    assert seen[-1].eta_s == 0.0
    assert any(p.running for p in seen)
    assert len(seen[-1].front) == 5


def test_the_reference_point_is_fixed_once(database: Path, toys: Registry) -> None:
    study_setting = setting(
        toys, objectives={"score": "max", "decode_tokens_per_s": "max", "memory_bytes": "min"}
    )
    _, repository, _ = drive(database, study_setting, Scripted())
    point = repository.open_study("tiny").reference_point
    assert point is not None
    assert point["score"] == pytest.approx(study_setting.task.chance)
    assert point["decode_tokens_per_s"] == 0.0
    assert point["memory_bytes"] == 2 * study_setting.budget.target("memory_bytes")


def test_rung_checkpoints_are_artefacts(database: Path, toys: Registry) -> None:
    _, repository, study = drive(database, setting(toys), Scripted())
    detail = repository.trial_detail(study, 1).runs[0]
    assert [a.path for a in detail.artefacts] == ["tiny/1/0/rung-0.ckpt"]
    assert detail.rungs[0].checkpoint == "tiny/1/0/rung-0.ckpt"


def test_the_next_candidates_are_proposed_while_the_last_ones_train(database: Path, toys: Registry) -> None:
    executor = Scripted(slots=2)
    seen: list[tuple[str, int]] = []

    def look(job: Job) -> None:
        with Repository.open(str(database), read_only=True) as reader:
            seen.append((job.phases[0], len(reader.trials(1))))

    executor.before = look
    drive(database, setting(toys, search={"trials": 5, "seeds": 1, "ahead": 2}), executor)
    pauses = [(before, at) for before, at in pairwise(seen) if (before[0], at[0]) == ("train", "profile")]
    assert [at[1] for _, at in pauses[:3]] == [4, 6, 6]
    # Nobody waited for a proposal between the last training and the first timing.
    assert all(before[1] == at[1] for before, at in pauses)
