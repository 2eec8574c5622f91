"""my_task by every rule of its kind: its rows, its solver, and that training and evaluation never meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from crossbreed import IGNORE, ConfigError, Host, Task
from crossbreed.core.conformance.testing import TaskConformance

FILES = (str(Path(__file__).with_name("my_task.py")),)
PARTS = Host.load(FILES)
SMALL = {"vocab": 3, "length": 9, "lag": 2, "eval_items": 40}


class TestRules(TaskConformance):
    plugin = "my_task"
    files = FILES


def task(**changes: Any) -> Task:
    found: Task = PARTS.factory("task", "my_task")(PARTS.config("task", "my_task", SMALL | changes))
    return found


def test_the_label_is_the_token_read_before() -> None:
    batch = task().train_batch(seed=0, step=0, size=4)
    assert torch.equal(batch.labels_BT[:, 2:], batch.tokens_BT[:, :-2])
    assert bool((batch.labels_BT[:, :2] == IGNORE).all())


def test_the_solver_reaches_the_bound() -> None:
    made = task()
    for batch in made.evaluation(16):
        answer_BT, scored_BT = made.solve(batch.tokens_BT), batch.labels_BT != IGNORE
        assert answer_BT is not None
        assert torch.equal(answer_BT[scored_BT], batch.labels_BT[scored_BT])


def test_training_and_evaluation_share_no_row() -> None:
    made = task()
    items = {tuple(row) for batch in made.evaluation(7) for row in batch.tokens_BT.tolist()}
    trained = {tuple(row) for step in range(30) for row in made.train_batch(1, step, 16).tokens_BT.tolist()}
    assert len(items) == 40
    assert not items & trained


@pytest.mark.parametrize("change", [{"vocab": 4}, {"length": 10}, {"lag": 3}, {"eval_items": 41}])
def test_every_setting_changes_what_is_evaluated(change: dict[str, int]) -> None:
    assert task().evaluation_hash() == task().evaluation_hash() != task(**change).evaluation_hash()


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="lag 9 leaves nothing to score in rows of 9 tokens"):
        task(lag=9)
