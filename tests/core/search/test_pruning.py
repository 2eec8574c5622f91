"""Pruning before training: only what cannot win at its fastest, and only while the member that beats it holds up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.contracts.task import Score
from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.search import preview
from crossbreed.core.search.candidates import Candidate, Objectives, read
from crossbreed.core.search.pruning import Bound
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage.rows import CandidateRow, EvaluationRow, MeasurementRow, PointRow, SeedRow
from tests.core.search.material import Scripted, by_number, drive, setting, study_data, toy_registry, width_of

TWO = Objectives({"score": "max", "decode_tokens_per_s": "max"})
THREE = Objectives({"score": "max", "decode_tokens_per_s": "max", "memory_bytes": "min"})
ACCURACY = Score("accuracy", "max", 1.0)


def point(name: str, speed: float, score: float | None = None, device: str = "cpu") -> PointRow:
    measured = MeasurementRow(
        metric="decode_tokens_per_s", unit="tokens/s", phase="decode", batch=1, tokens=16, dtype="float32", device=device,
        policy="best", compiled=False, median=speed, q1=speed, q3=speed, repeats=7, stable=True, threads=1, backends={},
    )  # fmt: skip
    judged = () if score is None else (EvaluationRow(16, {}, score, 8, 0),)
    return PointRow(name, None, None, None, None, (measured,), judged)


def row(
    number: int, *points: PointRow, trained: bool = False, routed: bool = False, memory: float = 8.0
) -> CandidateRow:
    state = "done" if trained else "queued"
    named = {p.name: p for p in points}
    seed = SeedRow(number, 0, state, None, int(trained), {}, named, "tune", 1e-3)
    ledger = {"memory_bytes": memory, "rates": {"0.0.gate": [0.5, 0.5]} if routed else {}}
    return CandidateRow(
        number, number, f"{number:064x}", "f", "sampler", {}, state, None, None, ledger, (seed,)
    )


def front_of(objectives: Objectives, *rows: CandidateRow) -> tuple[Bound, list[Candidate]]:
    keyed = objectives.over(rows)
    return Bound(ACCURACY, keyed), [c for c in read(rows, keyed) if c.on_front]


HOLDER = row(0, point("own", 100.0, 1.0), trained=True)


def test_a_member_at_the_bound_beats_what_is_slower_at_its_fastest() -> None:
    bound, front = front_of(TWO, HOLDER)
    verdict = bound.verdict(row(1, point("own", 80.0)), front)
    assert verdict is not None
    assert verdict.cause == (
        "not trained: decode_tokens_per_s is at most 80, while #0 holds the task's bound of 1 at 100"
    )
    assert bound.verdict(row(1, point("own", 100.0)), front) is None
    assert bound.verdict(row(1, point("own", 120.0)), front) is None


def test_a_routed_candidate_counts_at_the_fastest_of_its_forced_rates() -> None:
    bound, front = front_of(TWO, HOLDER)
    slow = [point("forced:0", 90.0), point("forced:1", 50.0)]
    assert bound.verdict(row(1, *slow, routed=True), front) is not None
    fast = [point("forced:0", 110.0), point("forced:1", 50.0)]
    assert bound.verdict(row(1, *fast, routed=True), front) is None
    # Without its cheapest choice nobody knows how fast it may become.
    assert bound.verdict(row(1, slow[1], routed=True), front) is None
    assert bound.verdict(row(1, routed=True), front) is None


def test_nothing_is_pruned_by_a_member_below_the_bound_or_without_a_bound() -> None:
    slow = row(1, point("own", 80.0))
    bound, front = front_of(TWO, row(0, point("own", 100.0, 0.999), trained=True))
    assert bound.verdict(slow, front) is None
    bound, front = front_of(TWO, HOLDER)
    assert replace(bound, score=Score("loss", "min", None)).verdict(slow, front) is None
    assert Bound(ACCURACY, Objectives({"decode_tokens_per_s": "max"})).verdict(slow, front) is None


def test_what_is_better_in_another_known_quantity_is_trained() -> None:
    bound, front = front_of(THREE, HOLDER)
    assert bound.verdict(row(1, point("own", 80.0), memory=7.0), front) is None
    assert bound.verdict(row(1, point("own", 80.0), memory=8.0), front) is not None


def test_routers_may_choose_cheaper_than_their_nominal_rates_say() -> None:
    objectives = Objectives({"score": "max", "decode_tokens_per_s": "max", "decode_flops_per_token": "min"})
    costs = {"decode_flops_per_token": 50.0}
    holder = replace(HOLDER, ledger={**(HOLDER.ledger or {}), **costs})
    bound, front = front_of(objectives, holder)
    dense, routed = (row(1, point("own", 80.0)), row(2, point("forced:0", 80.0), routed=True))
    dense, routed = (replace(r, ledger={**(r.ledger or {}), **costs}) for r in (dense, routed))
    assert bound.verdict(dense, front) is not None
    assert bound.verdict(routed, front) is None


def test_speeds_of_another_key_say_nothing() -> None:
    bound, front = front_of(TWO, HOLDER)
    assert bound.verdict(row(1, point("own", 80.0, device="gpu")), front) is None


def test_a_candidate_is_timed_again_only_at_points_it_lacks() -> None:
    assert preview.points(row(1), (0.0, 0.22)) == ("own",)
    assert preview.points(row(1, routed=True), (0.0, 0.22)) == ("forced:0", "forced:0.22")
    assert preview.due(row(1), (0.0,))
    assert not preview.due(row(1, point("own", 1.0)), (0.0,))
    assert not preview.due(row(1, routed=True), ())
    assert preview.due(row(1, point("forced:0", 1.0), routed=True), (0.0, 1.0))
    assert not preview.due(row(1, trained=True), (0.0,))


def test_a_study_may_time_nothing_before_it_is_trained(tmp_path: Path, toys: Registry) -> None:
    assert preview.points(row(1), None) == preview.points(row(1, routed=True), None) == ()
    assert not preview.due(row(1), None)
    bound, front = front_of(TWO, HOLDER)
    assert bound.verdict(row(1), front) is None
    executor = Scripted(slots=2)
    study = setting(toys, search={"trials": 3, "seeds": 1, "forced_rates": None})
    end, repository, _ = drive(tmp_path / "untimed.db", study, executor)
    repository.close()
    assert end == "done"
    first: dict[str, tuple[str, ...]] = {}
    for job in executor.log:
        first.setdefault(job.key, job.phases)
    assert set(first.values()) == {("train", "evaluate")}


def wide_are_slow(job: Job) -> tuple[float, float]:
    return 1.0, 4000.0 / width_of(job)


def test_a_search_does_not_train_what_is_beaten_before(database: Path, toys: Registry) -> None:
    executor = Scripted(wide_are_slow, slots=1)
    study_setting = setting(
        toys, space={"params": {"starts": [40, 8, 48, 16]}}, search={"trials": 4, "seeds": 1}
    )
    end, repository, study = drive(database, study_setting, executor)
    rows = by_number(repository, study)
    assert end == "done"
    # Of the reference (32), the wider ones are slower; the narrower ones are faster, until one of them is trained.
    assert {r.family: r.state for r in rows.values()} == {
        "width 32": "done",
        "width 40": "pruned",
        "width 8": "done",
        "width 48": "pruned",
        "width 16": "pruned",
    }
    assert str(rows[1].cause).startswith("not trained: decode_tokens_per_s is at most 110, while #0 holds")
    assert "while #2 holds the task's bound of 1" in str(rows[4].cause)
    assert all([job.phases for job in executor.log if job.number == n] == [("profile",)] for n in (1, 3, 4))


def test_what_a_lucky_member_had_pruned_is_trained_after_all(database: Path, toys: Registry) -> None:
    def lucky(job: Job) -> tuple[float, float]:
        width = width_of(job)
        return (1.0 if width == 32 and job.seed == 0 else 0.9 + 0.001 * width), 4000.0 / width

    executor = Scripted(lucky, slots=1)
    study_setting = setting(toys, space={"params": {"starts": [40]}}, search={"trials": 1, "seeds": 2})
    end, repository, study = drive(database, study_setting, executor)
    assert end == "done"
    pruned_first = [job.phases for job in executor.log if job.number == 1 or job.seed > 0]
    assert pruned_first[0] == ("profile",)
    # The fresh seeds of the reference come before the candidate that its first seed had pruned.
    order = [(job.number, job.seed) for job in executor.log if "train" in job.phases]
    assert order[:4] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert by_number(repository, study)[1].state == "done"


def test_several_candidates_are_timed_in_one_pause_before_the_first_is_trained(
    database: Path, toys: Registry
) -> None:
    executor = Scripted(slots=2)
    many = {"widths": list(range(8, 88, 8)), "starts": [8, 16, 24, 40, 48, 56]}
    study_setting = setting(
        toys,
        space={"params": many},
        search={"trials": 6, "seeds": 1, "ahead": 3},
        objectives={"score": "max"},
    )
    drive(database, study_setting, executor)
    kinds = "".join("p" if "profile" in job.phases else "t" for job in executor.log if job.seed == 0)
    # The reference with the first two of the batch of three, then the batches.
    assert kinds.startswith("ppptttppptttpt")
    for jobs in executor.together:
        assert len(jobs) == 1 or not any("profile" in job.phases for job in jobs)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_search_leaves_a_slow_candidate_untrained(tmp_path: Path) -> None:
    data: dict[str, Any] = study_data(
        task={"params": {"pairs": 1, "length": 8, "vocab": 9, "eval_items": 32}},
        train={"tokens": 16_000, "batch": 16, "lr": 1e-2},
        space={"params": {"widths": [32, 262_144], "starts": [262_144]}},
        search={"trials": 1, "seeds": 1},
    )
    data["budget"]["cap"] = {"state_bytes": "50%"}
    with Study.start(str(tmp_path / "study.db"), StudyFile.read(data), toy_registry()) as study:
        assert study.run(executor="inline", device="cpu").end == "done"
        reference, wide = study.read_candidates()
        assert reference.means["score"] == pytest.approx(1.0)
        assert reference.confirmed
        assert wide.row.state == "pruned"
        assert "while #0 holds the task's bound of 1" in str(wide.row.cause)
        assert study.repository.rungs(wide.row.seeds[0].run_id) == []
        assert wide.row.seeds[0].points["own"].speeds
