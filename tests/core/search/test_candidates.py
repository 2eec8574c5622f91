"""Reading stored results as objectives: keys are never mixed, versions never pooled, off-budget never on the front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from crossbreed.core.search import agenda, candidates
from crossbreed.core.search.candidates import Objectives, front_volume, read
from crossbreed.storage.rows import CandidateRow, EvaluationRow, MeasurementRow, PointRow, SeedRow

TWO = Objectives({"score": "max", "decode_tokens_per_s": "max"})


def measurement(median: float, device: str = "cpu", policy: str = "best") -> MeasurementRow:
    fields: dict[str, Any] = dict.fromkeys(MeasurementRow.__dataclass_fields__, 0)
    fields |= {
        "unit": "tokens/s",
        "metric": "decode_tokens_per_s",
        "phase": "decode",
        "batch": 1,
        "tokens": 16,
        "median": median,
    }
    return MeasurementRow(**{**fields, "device": device, "policy": policy})


def seed(
    number: int, score: float | None, *speeds: MeasurementRow, state: str = "done", **more: Any
) -> SeedRow:
    evaluations = () if score is None else (EvaluationRow(16, {}, score, 8, 0),)
    own = PointRow("own", None, None, None, None, speeds, evaluations)
    identities = more.get("identities", {"mixer:attention": "crossbreed 1"})
    role = more.get("role", "tune" if number == 0 else "report")
    own = replace(own, certificate=more.get("certificate"), ledger=more.get("ledger"))
    run, rungs = more.get("run", number + 1), more.get("rungs", 1)
    return SeedRow(run, number, state, None, rungs, identities, {"own": own}, role, more.get("lr", 1e-3))


def settings(*scores: float | None, **more: Any) -> list[SeedRow]:
    """Tuning runs of one candidate, done and measured, the learning rate of each being its number."""
    return [
        seed(
            i,
            s,
            measurement(9.0),
            role="tune",
            lr=float(i),
            state="done" if s is not None else "diverged",
            **more,
        )
        for i, s in enumerate(scores)
    ]


def row(number: int, *seeds: SeedRow, origin: str = "sampler", **more: Any) -> CandidateRow:
    return CandidateRow(
        number, number, f"{number:064x}", "f", origin, {}, "done", None, None, more.get("ledger"), seeds
    )


def test_means_and_intervals_over_seeds() -> None:
    spread = [(0.8, 10.0), (0.9, 20.0), (1.0, 30.0)]
    seeds = [seed(i, s, measurement(v), role="report") for i, (s, v) in enumerate(spread, 1)]
    (found,) = read([row(0, *seeds)], TWO)
    assert found.means == pytest.approx({"score": 0.9, "decode_tokens_per_s": 20.0})
    interval = found.intervals["score"]
    assert interval is not None
    assert interval.low == pytest.approx(0.9 - 4.302652730 * 0.1 / math.sqrt(3))
    assert found.on_front


def test_speeds_of_another_key_are_not_mixed_in() -> None:
    rows = [
        row(0, seed(1, 0.5, measurement(10.0)), seed(2, 0.5, measurement(10.0))),
        row(1, seed(0, 0.4, measurement(20.0), measurement(99.0, device="gpu"))),
        row(2, seed(0, 0.9, measurement(500.0, device="gpu"))),
        row(3, seed(0, 0.9, measurement(500.0, policy="reference"))),
    ]
    found = read(rows, TWO)
    assert [c.means["decode_tokens_per_s"] for c in found[:2]] == [10.0, 20.0]
    assert all(math.isnan(c.means["decode_tokens_per_s"]) for c in found[2:])
    assert [c.on_front for c in found] == [True, True, False, False]


def test_a_score_that_is_missing_is_never_on_the_front() -> None:
    found = read([row(0, seed(0, None, measurement(9.0))), row(1, seed(0, 0.1, measurement(1.0)))], TWO)
    assert [c.on_front for c in found] == [False, True]


def test_off_budget_has_numbers_but_no_place() -> None:
    off = row(0, seed(0, 0.9, measurement(9.0), state="off_budget"))
    mixed = row(1, seed(1, 0.9, measurement(9.0)), seed(2, 0.9, measurement(9.0), state="off_budget"))
    found = read([off, mixed, row(2, seed(0, 0.1, measurement(1.0)))], TWO)
    assert [c.on_front for c in found] == [False, False, True]
    assert found[0].means["score"] == 0.9


def test_seeds_of_another_plugin_version_do_not_pool() -> None:
    old = [seed(i + 1, 0.1, measurement(1.0), identities={"router:x": "sha256:old"}) for i in range(2)]
    new = [seed(i + 3, 0.5, measurement(2.0), identities={"router:x": "sha256:new"}) for i in range(2)]
    (found,) = read([row(0, *old, *new)], TWO)
    assert found.values["score"] == (0.5, 0.5)
    (found,) = read([row(0, *old, *new[:1])], TWO)
    assert found.values["score"] == (0.1, 0.1)


def test_fresh_runs_of_a_new_version_that_all_fail_are_not_asked_for_again() -> None:
    old, new = {"mixer:attention": "crossbreed 1"}, {"mixer:attention": "crossbreed 2"}
    reports = [seed(n, None, state="diverged", identities=new) for n in (1, 2, 3)]
    (found,) = read([row(0, seed(0, 0.9, measurement(9.0), identities=old), *reports)], TWO)
    assert found.on_front
    assert not agenda.wanted_seeds([found], 3, settings=1)


def test_ledger_quantities_are_objectives_without_intervals() -> None:
    objectives = Objectives({"score": "max", "memory_bytes": "min"})
    rows = [row(i, seed(0, 0.5), ledger={"memory_bytes": 100.0 + i}) for i in range(2)]
    found = read(rows, objectives)
    assert [c.on_front for c in found] == [True, False]
    assert found[0].intervals["memory_bytes"] is None
    assert front_volume(found, objectives, {"score": 0.0, "memory_bytes": 200.0}) == pytest.approx(50.0)


def test_a_quantity_that_trained_routers_moved_is_what_they_made_of_it() -> None:
    def trained(flops: Sequence[float], number: int, nominal: float = 100.0) -> CandidateRow:
        seeds = [seed(i, 0.5, ledger={"decode_flops_per_token": f}) for i, f in enumerate(flops, start=1)]
        return row(number, *seeds, ledger={"decode_flops_per_token": nominal})

    # Its settings promise 60, but its gates run always; another one is dense and costs 150 as stated.
    objectives = Objectives({"score": "max", "decode_flops_per_token": "min"})
    liar, dense = read([trained([160.0, 170.0, 180.0], 0, 60.0), trained([150.0] * 3, 1, 150.0)], objectives)
    assert liar.means["decode_flops_per_token"] == 170.0
    assert liar.intervals["decode_flops_per_token"] is not None
    assert dense.intervals["decode_flops_per_token"] is None
    assert [liar.on_front, dense.on_front] == [False, True]
    untrained = row(2, seed(0, None, state="queued"), ledger={"decode_flops_per_token": 60.0})
    assert candidates.value("decode_flops_per_token", untrained, untrained.seeds[0], objectives) == 60.0


def test_what_a_run_needs_next() -> None:
    def need(*seeds: SeedRow, rungs: int = 1) -> list[str]:
        return [item.need for item in agenda.needs(row(0, *seeds), agenda.Course("max", rungs))]

    waits: dict[str, Any] = {"state": "queued"}
    # Timed before it is trained, if not yet.
    assert need(seed(0, None, rungs=0, **waits)) == ["preview"]
    assert need(seed(0, None, measurement(1.0), rungs=0, **waits)) == ["train"]
    assert need(seed(0, None, rungs=1, **waits)) == ["train"]
    assert need(seed(0, 0.5, rungs=1, **waits), rungs=2) == ["train"]
    assert need(seed(0, 0.5, rungs=1, **waits)) == ["profile"]
    assert need(seed(0, 0.5, measurement(1.0), rungs=1, **waits)) == ["nothing"]
    assert need(seed(0, 0.5, rungs=1)) == []


def test_settings_wait_for_each_other_and_only_the_best_is_timed() -> None:
    def need(*scores: float | None) -> list[str]:
        seeds = [
            seed(i, s, role="tune", state="queued", rungs=0 if s is None else 1) for i, s in enumerate(scores)
        ]
        return [item.need for item in agenda.needs(row(0, *seeds), agenda.Course("max"))]

    assert need(None, None) == ["preview", "siblings"]
    assert need(0.5, None, 0.9) == ["siblings", "train", "siblings"]
    assert need(0.5, 0.7, 0.9) == ["nothing", "nothing", "profile"]
    assert need(0.9, 0.9, 0.1) == ["profile", "nothing", "nothing"]


def test_the_best_setting_is_the_candidates_and_a_diverged_one_counts_as_worst() -> None:
    (found,) = read([row(0, *settings(0.2, None, 0.6))], TWO)
    assert (found.lr, found.means["score"], found.confirmed) == (2.0, 0.6, False)
    assert found.provisional
    (found,) = read([row(0, *settings(None, None))], TWO)
    assert (found.lr, found.eligible) == (None, False)
    (lower,) = read([row(0, *settings(0.2, 0.6))], Objectives({"score": "min"}))
    assert lower.lr == 0.0


def test_a_setting_within_the_budget_comes_before_a_better_one_outside() -> None:
    runs = settings(0.9, 0.4)
    own = replace(runs[0].points["own"], certificate={"feasible": False, "reason": "memory"})
    (found,) = read([row(0, replace(runs[0], points={"own": own}, state="off_budget"), runs[1])], TWO)
    assert (found.lr, found.means["score"]) == (1.0, 0.4)
    assert found.eligible


def test_reported_numbers_are_those_of_fresh_runs_alone() -> None:
    fresh = [seed(i, 0.5, measurement(9.0)) for i in (2, 3)]
    (found,) = read([row(0, *settings(0.2, 0.9), *fresh)], TWO)
    assert found.values["score"] == (0.5, 0.5)
    assert found.confirmed
    assert not found.provisional


def test_a_member_whose_fresh_runs_all_fail_leaves_the_front() -> None:
    failed = [seed(i, None, state="diverged") for i in (1, 2)]
    weaker = row(1, seed(0, 0.1, measurement(1.0)))
    found = read([row(0, seed(0, 0.9, measurement(9.0)), *failed), weaker], TWO)
    assert [c.on_front for c in found] == [False, True]
    waiting = seed(3, None, state="queued", rungs=0)
    found = read([row(0, seed(0, 0.9, measurement(9.0)), *failed, waiting), weaker], TWO)
    assert [c.on_front for c in found] == [True, False]


def test_fresh_seeds_go_to_the_front_and_to_given_genomes() -> None:
    rows = [
        row(0, seed(0, 0.1, measurement(1.0)), origin="reference"),
        row(1, seed(0, 0.9, measurement(9.0)), seed(3, 0.9, measurement(9.0), run=9)),
        row(2, seed(0, 0.2, measurement(2.0))),
        row(3, origin="named"),
    ]
    wanted = agenda.wanted_seeds(read(rows, TWO), 3, settings=1)
    assert [(c.row.number, best.seed, seeds) for c, best, seeds in wanted] == [
        (0, 0, [1, 2, 3]),
        (1, 0, [1, 2]),
    ]
    wanted = agenda.wanted_seeds(read(rows, TWO), 1, settings=4)
    assert [(c.row.number, seeds) for c, _, seeds in wanted] == [(0, [4])]


def pointed(number: int, own: tuple[float, float], **points: tuple[float, float]) -> CandidateRow:
    """A candidate of three report runs with (score, speed) at its own decisions and at other points, by name."""

    def at(name: str, score: float, speed: float) -> PointRow:
        return PointRow(
            name, None, None, None, None, (measurement(speed),), (EvaluationRow(16, {}, score, 8, 0),)
        )

    seeds = []
    for i in range(1, 4):
        found = seed(i, own[0] + 0.001 * i, measurement(own[1]))
        more = {name: at(name, score + 0.001 * i, speed) for name, (score, speed) in points.items()}
        seeds.append(replace(found, points={**found.points, **more}))
    return row(number, *seeds)


def test_points_compete_and_a_front_row_names_one() -> None:
    rows = [
        pointed(0, (0.9, 10.0), a=(0.8, 30.0), b=(0.7, 20.0)),
        pointed(1, (0.75, 25.0), a=(0.95, 5.0), c=(0.1, 1.0)),
        pointed(2, (0.5, 28.0)),
    ]
    objectives = Objectives(TWO.directions, points=("own", "a", "b"))
    found = read(rows, objectives)
    assert [c.key for c in found] == [(0, "own"), (0, "a"), (0, "b"), (1, "own"), (1, "a"), (2, "own")]
    assert [c.key for c in found if c.on_front] == [(0, "own"), (0, "a"), (1, "a")]
    by_key = {c.key: c for c in found}
    assert by_key[0, "a"].values == {"score": (0.801, 0.802, 0.803), "decode_tokens_per_s": (30.0,) * 3}
    assert by_key[0, "a"].intervals["score"] is not None
    # Without points to compete, each is there once, as if it had none.
    alone = read(rows, TWO)
    assert [c.key for c in alone] == [(0, "own"), (1, "own"), (2, "own")]
    assert [c.row.number for c in alone if c.on_front] == [0, 1, 2]


def test_a_point_may_spend_less_than_its_budget_and_not_more() -> None:
    def at_residual(residual: float) -> list[tuple[int, str]]:
        off = pointed(0, (0.5, 10.0), a=(0.9, 30.0))
        quantity = {"quantity": "prefill_flops_per_token", "residual": residual, "tolerance": 0.02}
        certificate = {"feasible": abs(residual) <= 0.02, "quantities": [quantity]}
        seeds = [
            replace(s, points={**s.points, "a": replace(s.points["a"], certificate=certificate)})
            for s in off.seeds
        ]
        objectives = Objectives(TWO.directions, points=("own", "a"))
        found = read([replace(off, seeds=tuple(seeds)), pointed(1, (0.6, 20.0))], objectives)
        return [c.key for c in found if c.on_front]

    assert at_residual(0.3) == [(1, "own")]
    assert at_residual(0.01) == at_residual(-0.3) == [(0, "a")]
