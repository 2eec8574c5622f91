"""What a small model was seen to learn: settings that are legal, numbers that can be true, and the training itself again."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from crossbreed.core.host import Registry
from crossbreed.plugins.tasks.proven import PROVEN

SOON = 600_000
"""Training tokens of what is learnt within seconds; the others are left to ``benchmarks/prove_tasks.py``."""
FILE = Path(__file__).parents[3] / "benchmarks" / "prove_tasks.py"


@pytest.fixture(scope="module")
def prove() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("prove_tasks", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prove_tasks"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["prove_tasks"]


def number_of(prove: ModuleType, name: str) -> int:
    """Which of the tried settings is the proven one."""
    wanted = (name, dict(PROVEN[name].settings))
    (found,) = (n for n, this in enumerate(prove.TRIED) if (this.task, this.settings) == wanted)
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
    tried = prove.TRIED[number_of(prove, name)]
    assert 0 < found.tokens <= 1.01 * tried.tokens
    assert found.seeds >= 1
    assert found.model_parameters < 200_000


def test_every_task_that_has_a_solver_was_tried(registry: Registry, prove: ModuleType) -> None:
    assert {this.task for this in prove.TRIED} == set(registry.names("task")) - {"bytes", "text"}


def test_facts_are_learnt_again(prove: ModuleType) -> None:
    found = prove.tried(number_of(prove, "facts"), 7, "cpu")
    assert found["score"] >= 0.99
    assert found["parameters"] == PROVEN["facts"].model_parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, found in PROVEN.items() if found.tokens <= SOON])
def test_what_was_learnt_soon_is_learnt_again(prove: ModuleType, name: str) -> None:
    found = prove.tried(number_of(prove, name), 0, "cpu")
    # Sums may differ in their last bits from machine to machine, and so may the look at which a run ends.
    assert found["score"] >= PROVEN[name].score - 0.02
    assert found["parameters"] == PROVEN[name].model_parameters
