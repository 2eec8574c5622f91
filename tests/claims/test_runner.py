"""Runs that add up: tuned alike, paired by seed, never made twice, and judged by what was declared before them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from crossbreed.claims.plan import TUNE_SEED
from crossbreed.claims.record import REPORT, TUNE, Declared, Record
from crossbreed.claims.runner import Progress, Runner, declared_in
from crossbreed.core.errors import ConfigError, InfeasibleBudget
from crossbreed.core.host import Host, Registry
from tests.claims.tiny import CLAIM, EXPERIMENT, PAPER, with_margin

ARMS, LRS = 3, 2


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Host.load(third_party=False)


def runner(path: Path, registry: Registry, seeds: int = 3, **options: object) -> Runner:
    return Runner(PAPER, Record.at(path, "tiny", "cpu"), registry, seeds, seeds, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Path:
    path = tmp_path_factory.mktemp("claims") / "tiny.json"
    assert runner(path, registry).run() == "done"
    return path


def test_every_arm_is_tuned_over_the_same_rates_and_run_on_the_same_seeds(recorded: Path) -> None:
    runs = Record.at(recorded, "tiny", "cpu").runs
    assert len(runs) == ARMS * (LRS + 3)
    for arm in ("gated", "random", "always"):
        own = [r for r in runs if r["arm"] == arm]
        assert sorted(r["lr"] for r in own if r["role"] == TUNE) == sorted(EXPERIMENT.lrs)
        assert [r["seed"] for r in own if r["role"] == REPORT] == [0, 1, 2]
        assert {r["seed"] for r in own if r["role"] == TUNE} == {TUNE_SEED}
        assert len({r["lr"] for r in own if r["role"] == REPORT}) == 1


def test_seeds_are_interleaved_so_that_an_interruption_leaves_pairs(recorded: Path) -> None:
    runs = [r for r in Record.at(recorded, "tiny", "cpu").runs if r["role"] == REPORT]
    assert [r["seed"] for r in runs] == sorted(r["seed"] for r in runs)


def test_a_random_gate_gets_the_rate_that_the_gate_had_in_its_tuning_run(recorded: Path) -> None:
    record = Record.at(recorded, "tiny", "cpu")
    given = record.arms["tiny/random"]["rate"]
    tuning = [r for r in record.runs if r["arm"] == "gated" and r["role"] == TUNE]
    realised = [r["points"]["own"]["rates"]["1.0.0.gate"][1] for r in tuning]
    assert any(given == pytest.approx(rate, abs=0.005) for rate in realised)
    gates = record.arms["tiny/random"]["genome"]["stages"][1]["blocks"][0]["gate"]
    assert gates["params"]["probability"] == given


def test_every_arm_has_its_certificate_and_every_run_its_numbers(recorded: Path) -> None:
    record = Record.at(recorded, "tiny", "cpu")
    for arm in record.arms.values():
        assert arm["certificate"]["feasible"]
        assert arm["certificate"]["quantities"][0]["quantity"] == "parameters"
    always = next(r for r in record.runs if r["arm"] == "always")
    assert set(always["points"]) == {"own", "open"}
    assert [tokens for tokens, _ in always["curve"]] == [320, 640]
    assert always["tokens"] == 640
    gated = next(r for r in record.runs if r["arm"] == "gated")
    assert gated["seen"]["sites"]["1.0.0.gate"]["classes"].keys() == {"key", "value", "filler", "query"}


def test_run_again_it_makes_nothing_twice_and_more_seeds_add_up(recorded: Path, registry: Registry) -> None:
    made: list[Progress] = []
    again = runner(recorded, registry, on_run=made.append)
    assert again.run() == "done"
    assert made == []
    more = runner(recorded, registry, seeds=4, on_run=made.append)
    more.run()
    assert [(p.run["seed"], p.run["role"]) for p in made] == [(3, REPORT)] * ARMS
    assert more.answers()[0].parts[0].judged.seeds == 4
    assert len(Record.at(recorded, "tiny", "cpu").sessions) == 3


def test_it_is_judged_and_says_tokens_and_time(recorded: Path, registry: Registry) -> None:
    (answer,) = runner(recorded, registry).answers()
    assert answer.verdict == "supported"
    assert answer.tokens >= ARMS * (LRS + 3) * 640
    assert answer.seconds > 0
    assert answer.late == 0
    assert answer.parts[0].means is not None
    assert answer.parts[0].means.keys() == {"tiny/gated score", "tiny/always score"}


def test_a_margin_changed_after_the_record_is_refused_with_the_claims_name(
    recorded: Path, registry: Registry
) -> None:
    record = Record.at(recorded, "tiny", "cpu")
    with pytest.raises(ConfigError, match="claim T1 of tiny was declared otherwise"):
        Runner(with_margin(0.001), record, registry, 3, 3).run()


def test_a_claim_declared_after_its_runs_is_marked(recorded: Path, registry: Registry) -> None:
    record = Record.at(recorded, "tiny", "cpu")
    record.declared.clear()
    record.declare(CLAIM, Declared("abc", "def", "now"))
    assert Runner(PAPER, record, registry, 3, 3).answers()[0].late == sum(
        r["role"] == REPORT for r in record.runs
    )


def test_runs_of_another_task_or_recipe_are_not_counted(recorded: Path, registry: Registry) -> None:
    longer = replace(EXPERIMENT, recipe={**EXPERIMENT.recipe, "tokens": 1280})
    paper = replace(PAPER, experiments={"cpu": (longer,), "gpu": ()})
    (answer,) = Runner(paper, Record.at(recorded, "tiny", "cpu"), registry, 3, 3).answers()
    assert answer.verdict == "undecided"
    assert "no run" in answer.parts[0].why


def test_a_stop_after_the_first_run_keeps_it_and_the_next_session_goes_on(
    tmp_path: Path, registry: Registry
) -> None:
    path = tmp_path / "tiny.json"
    first = runner(path, registry, seeds=1)
    first.on_run = lambda progress: first._stop()
    assert first.run() == "interrupted"
    assert len(Record.at(path, "tiny", "cpu").runs) == 1
    second = runner(path, registry, seeds=1)
    second.on_run = lambda progress: second._stop()
    second.run()
    runs = Record.at(path, "tiny", "cpu").runs
    assert len({(r["arm"], r["lr"]) for r in runs}) == 2


def test_the_time_limit_begins_nothing_more(tmp_path: Path, registry: Registry) -> None:
    limited = runner(tmp_path / "tiny.json", registry, minutes=1e-9)
    assert limited.run() == "time"
    assert limited.record.runs == []


def test_an_arm_outside_the_budget_is_named_before_anything_is_trained(
    tmp_path: Path, registry: Registry
) -> None:
    wide = EXPERIMENT.arms[2].architecture.model_copy(update={"d_model": 64})
    arms = (EXPERIMENT.arms[0], replace(EXPERIMENT.arms[2], architecture=wide))
    paper = replace(PAPER, experiments={"cpu": (replace(EXPERIMENT, arms=arms),), "gpu": ()})
    with pytest.raises(InfeasibleBudget, match="arm tiny/always is outside the budget"):
        Runner(paper, Record.at(tmp_path / "x.json", "tiny", "cpu"), registry, 3, 3).run()


def test_another_papers_record_and_a_file_that_is_none_are_refused(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is of tiny at scale cpu, not of amor at gpu"):
        Record.at(recorded, "amor", "gpu")
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"schema": "something"}))
    with pytest.raises(ConfigError, match="must be a JSON object of schema"):
        Record.at(other, "amor", "cpu")


def test_a_declaration_is_known_by_its_commit_and_by_contents_that_outlive_it(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    file = tmp_path / "claims.py"
    file.write_text("margin = 0.05")
    assert declared_in(file).commit is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "declare")
    first = declared_in(file)
    assert first.commit == git("rev-parse", "HEAD")
    git("commit", "-q", "--amend", "-m", "declare, said otherwise")
    moved = declared_in(file)
    assert moved.commit != first.commit
    assert (moved.blob, moved.written) == (first.blob, first.written)
    file.write_text("margin = 0.01")
    assert declared_in(file).commit is None
