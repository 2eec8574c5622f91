"""What a small model was seen to learn: settings that are legal, numbers that can be true, and the training itself again."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from crossbreed.core.host import Registry
from crossbreed.plugins.tasks.proven import PROVEN

SOON = 600_000
"""Training tokens of what is learnt within seconds; the others are left to ``benchmarks/prove_tasks.py``."""
FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def prove() -> Iterator[ModuleType]:
    # On the path, where processes that it starts find it, too.
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("prove_tasks")
    sys.path.remove(str(FOLDER))
    del sys.modules["prove_tasks"]


def trying(prove: ModuleType, name: str) -> Any:
    """Which of those that were tried is the proven one."""
    wanted = (name, dict(PROVEN[name].settings), PROVEN[name].model)
    (found,) = (this for this in prove.TRIED if (this.task, this.settings, prove.in_words(this)) == wanted)
    return found


@pytest.mark.parametrize("name", PROVEN)
def test_a_proven_setting_is_offered_legal_and_beyond_guessing(
    registry: Registry, prove: ModuleType, name: str
) -> None:
    found = PROVEN[name]
    assert registry.descriptor("task", name).proven == found
    task = registry.factory("task", name)(registry.config("task", name, dict(found.settings)))
    guesses = (task.chance, *task.baselines().values())
    assert task.score.bound is not None
    assert max(guesses) + 0.2 < found.score <= task.score.bound
    assert 0 < found.tokens <= 1.01 * trying(prove, name).tokens
    assert found.seeds >= 1
    assert found.model_parameters < 1_000_000


def test_every_task_that_has_a_solver_was_tried(registry: Registry, prove: ModuleType) -> None:
    assert {this.task for this in prove.TRIED} == set(registry.names("task")) - {"bytes", "text"}


def test_facts_are_learnt_again(prove: ModuleType) -> None:
    found = prove.tried(trying(prove, "facts"), 7, "cpu")
    assert found["score"] >= 0.99
    assert found["parameters"] == PROVEN["facts"].model_parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, found in PROVEN.items() if found.tokens <= SOON])
def test_what_was_learnt_soon_is_learnt_again(prove: ModuleType, name: str) -> None:
    found = prove.tried(trying(prove, name), 0, "cpu")
    # Sums may differ in their last bits from machine to machine, and so may the look at which a run ends.
    assert found["score"] >= PROVEN[name].score - 0.02
    assert found["parameters"] == PROVEN[name].model_parameters


def run(this: Any, seed: int, score: float | None, tokens: int) -> dict[str, Any]:
    """A result as the script writes it."""
    found = {**this._asdict(), "seed": seed, "score": score, "trained_tokens": tokens, "parameters": 1234}
    return dict(json.loads(json.dumps(found)))


def test_of_what_seeds_have_shown_the_worst_counts_and_the_hardest_setting_that_all_learnt(
    prove: ModuleType,
) -> None:
    easy, hard, harder = (this for this in prove.TRIED if this.task == "permutations")
    learnt = [run(this, seed, 0.99 - seed / 100, 1000 + seed) for this in (hard, easy) for seed in (0, 1, 2)]
    few = [run(harder, seed, 0.99, 1000) for seed in (0, 1)]
    bad = [run(harder, 2, None, 0)]
    (found,) = prove.learnt([*learnt, *few, *bad])
    assert (found["settings"], found["model"]) == (hard.settings, prove.in_words(hard))
    assert (found["score"], found["tokens"], found["seeds"]) == (0.97, 1002, 3)
    # A later run of a seed takes the place of an earlier one, and a setting that one seed did not learn is not shown.
    assert prove.learnt([*learnt[:3], run(hard, 1, 0.5, 9)]) == []


def test_what_is_taken_replaces_its_task_and_leaves_the_others(
    prove: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "PROVEN", tmp_path / "proven.json")
    old = [{"task": "facts", "score": 0.5}, {"task": "copy", "score": 0.5}]
    (tmp_path / "proven.json").write_text(json.dumps(old))
    facts = next(this for this in prove.TRIED if this.task == "facts")
    results = tmp_path / "results.jsonl"
    results.write_text("\n".join(json.dumps(run(facts, seed, 1.0, 9)) for seed in range(3)))
    prove.take([str(results)])
    first, second = json.loads((tmp_path / "proven.json").read_text())
    assert (first["score"], first["seeds"], second) == (1.0, 3, old[1])


@pytest.mark.slow
def test_runs_end_with_their_time_and_one_that_fails_leaves_the_others(
    prove: ModuleType, tmp_path: Path
) -> None:
    facts = next(this for this in prove.TRIED if this.task == "facts")
    bad = facts._replace(settings={"values": 65})
    results = tmp_path / "results.jsonl"
    with results.open("w") as out:
        prove.prove([(bad, 0), (facts._replace(tokens=10**9), 1)], "cpu", 1, 5.0, out)
    cut, failed = map(json.loads, results.read_text().splitlines())
    assert (failed["state"], failed["score"]) == ("failed", None)
    assert "65" in failed["cause"]
    assert cut["state"] == "preempted"
