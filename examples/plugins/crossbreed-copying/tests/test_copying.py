"""Rows are right and solvable, training and evaluation never meet, every setting changes the data."""

import pytest
import torch
from copying_task import CopyingConfig
from copying_task.task import Copying

from crossbreed import IGNORE, ConfigError, Host, Totals
from crossbreed.core.conformance.testing import TaskConformance

TASK = Copying(CopyingConfig(symbols=3, span=8, eval_items=40))


class TestRules(TaskConformance):
    plugin = "copying"


def rows(batches):
    return {tuple(row) for batch in batches for row in batch.tokens_BT.tolist()}


def test_a_row_is_a_span_a_question_and_the_span_again():
    batch = TASK.train_batch(0, 0, 4)
    assert batch.tokens_BT.shape == batch.labels_BT.shape == (4, TASK.length)
    assert int(batch.tokens_BT.max()) < TASK.vocab
    for tokens, labels in zip(batch.tokens_BT.tolist(), batch.labels_BT.tolist(), strict=True):
        assert tokens[8] == 3
        assert tokens[9:] == tokens[:7]
        assert labels[:8] == [IGNORE] * 8
        assert labels[8:] == tokens[:8]


def test_the_solver_reaches_the_bound_on_scored_positions():
    for batch in TASK.evaluation(16):
        scored = batch.labels_BT != IGNORE
        assert torch.equal(TASK.solve(batch.tokens_BT)[scored], batch.labels_BT[scored])


def test_training_and_evaluation_share_no_row_though_few_exist():
    evaluation = rows(TASK.evaluation(7))
    training = rows(TASK.train_batch(seed, step, 32) for seed in range(2) for step in range(20))
    assert len(evaluation) == 40
    assert len(training) > 500
    assert not evaluation & training


def test_a_row_depends_on_seed_and_step_and_not_on_the_size_of_the_batch():
    small, large = TASK.train_batch(1, 2, 3), TASK.train_batch(1, 2, 9)
    assert torch.equal(small.tokens_BT, large.tokens_BT[:3])
    assert not torch.equal(small.tokens_BT, TASK.train_batch(1, 3, 3).tokens_BT)


@pytest.mark.parametrize("change", [{"symbols": 4}, {"span": 9}, {"eval_items": 41}])
def test_every_setting_changes_the_items_that_are_evaluated(change):
    settings = {"symbols": 3, "span": 8, "eval_items": 40}
    assert Copying(CopyingConfig(**settings)).evaluation_hash() == TASK.evaluation_hash()
    assert Copying(CopyingConfig(**(settings | change))).evaluation_hash() != TASK.evaluation_hash()


def test_settings_that_leave_too_few_rows_are_refused_before_anything_is_drawn():
    with pytest.raises(ConfigError, match="2 symbols and a span of 4 make 16 different rows"):
        Host.load().config("task", "copying", {"symbols": 2, "span": 4})


def test_an_accuracy_of_nothing_is_no_score():
    assert TASK.metrics(Totals(10, 4, 5.0)) == {"accuracy": 0.4, "loss_nats": 0.5}
    with pytest.raises(ConfigError, match="0 scored positions"):
        TASK.metrics(Totals(0, 0, 0.0))
