"""Associative recall: labels at the query, one right answer, nothing shared between training and evaluation."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from crossbreed.core.contracts.task import IGNORE, Totals
from crossbreed.core.errors import ConfigError
from crossbreed.plugins.tasks.configs import RecallConfig
from crossbreed.plugins.tasks.counter import row_hashes
from crossbreed.plugins.tasks.recall import Recall


def task(**settings):
    return Recall(RecallConfig(**settings))


def scored(batch):
    return batch.labels_BT != IGNORE


def test_a_row_written_out_by_hand_is_solved():
    """Vocabulary 12 with fillers 0-3, keys 4-7, values 8-11; 2 pairs in 16 tokens."""
    t = task(vocab=12, pairs=2, length=16, fillers=4, eval_items=64)
    row = [5, 9, 7, 8, 0, 3, 7, 1, 1, 5, 2, 0, 3, 3, 1, 2]
    answers = t.solve(torch.tensor([row]))[0]
    # After reading key 7 at position 6 the model should say 8, and after key 5 at position 9 it should say 9.
    assert answers[6] == 8
    assert answers[9] == 9
    assert (t.config.keys, t.config.values) == (4, 4)


def test_longer_rows_are_fixed_items_of_their_own():
    t = task(length=16, pairs=2, eval_items=64)
    longer = t.at_length(64)
    assert (longer.length, longer.vocab) == (64, t.vocab)
    assert longer.evaluation_hash() == task(length=16, pairs=2, eval_items=64).at_length(64).evaluation_hash()
    assert longer.evaluation_hash() != t.evaluation_hash()
    with pytest.raises(ConfigError, match="length 3 is too short for 2 pairs"):
        t.at_length(3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"vocab": 12, "pairs": 2, "length": 16, "eval_items": 64},
        {"pairs": 3, "queries": 1},
        {"pairs": 2, "queries": 7, "length": 21},
        {"vocab": 65, "pairs": 6, "length": 18, "fillers": 1},
    ],
)
def test_rows_have_the_published_layout(settings):
    t = task(**settings)
    c, batch = t.config, t.train_batch(seed=1, step=2, size=200)
    tokens = batch.tokens_BT
    assert tokens.shape == (200, c.length)
    assert tokens.dtype == torch.int64
    first_key, first_value = c.fillers, c.fillers + c.keys
    keys, values = tokens[:, 0 : 2 * c.pairs : 2], tokens[:, 1 : 2 * c.pairs : 2]
    assert ((keys >= first_key) & (keys < first_value)).all()
    assert ((values >= first_value) & (values < c.vocab)).all()
    assert all(len(set(row.tolist())) == c.pairs for row in keys)
    assert (scored(batch).sum(1) == c.asked).all()
    assert not scored(batch)[:, : 2 * c.pairs].any()
    # A scored position holds a key of its row; every other later token is a filler, which is never a key or a value.
    tail, asked = tokens[:, 2 * c.pairs :], scored(batch)[:, 2 * c.pairs :]
    assert (tail[~asked] < c.fillers).all()
    for row in range(200):
        pairs = dict(zip(keys[row].tolist(), values[row].tolist(), strict=True))
        for position in scored(batch)[row].nonzero().flatten().tolist():
            assert pairs[tokens[row, position].item()] == batch.labels_BT[row, position].item()
        if c.queries is None:
            assert sorted(tail[row][asked[row]].tolist()) == sorted(pairs)


def test_the_solver_reaches_the_bound_and_a_constant_guess_chance():
    t = task()
    for batch in t.evaluation(100):
        mask = scored(batch)
        assert torch.equal(t.solve(batch.tokens_BT)[mask], batch.labels_BT[mask])
    assert (t.score.name, t.score.direction, t.score.bound) == ("accuracy", "max", 1.0)
    labels = torch.cat([b.labels_BT[scored(b)] for b in t.evaluation(100)])
    guess = (labels == labels[0]).double().mean()
    # 5 standard errors of 2,048 draws.
    assert abs(guess - t.chance) < 5 * (t.chance / len(labels)) ** 0.5
    assert t.chance == 1 / 22


def test_values_say_nothing_about_each_other():
    batch = task(vocab=12, pairs=2, length=16, eval_items=64).train_batch(0, 0, 4000)
    equal = (batch.tokens_BT[:, 1] == batch.tokens_BT[:, 3]).double().mean()
    assert abs(equal - 0.25) < 0.04


def test_a_batch_is_a_function_of_seed_and_step_and_rows_do_not_depend_on_size():
    t = task()
    one, again = t.train_batch(3, 7, 16), task().train_batch(3, 7, 16)
    assert torch.equal(one.tokens_BT, again.tokens_BT)
    assert torch.equal(one.labels_BT, again.labels_BT)
    assert torch.equal(t.train_batch(3, 7, 100).tokens_BT[:16], one.tokens_BT)
    for seed, step in ((4, 7), (3, 8)):
        assert not torch.equal(t.train_batch(seed, step, 16).tokens_BT, one.tokens_BT)


def test_another_process_sees_the_same_data():
    code = (
        "from crossbreed.plugins.tasks.configs import RecallConfig\n"
        "from crossbreed.plugins.tasks.recall import Recall\n"
        "t = Recall(RecallConfig())\n"
        "print(t.evaluation_hash(), t.train_batch(3, 7, 2).tokens_BT.tolist())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        other.stdout.strip() == f"{task().evaluation_hash()} {task().train_batch(3, 7, 2).tokens_BT.tolist()}"
    )


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_evaluation_items_are_fixed_whatever_the_batch_size(size):
    t = task(eval_items=70)
    rows = torch.cat([b.tokens_BT for b in t.evaluation(size)])
    assert rows.shape == (70, 32)
    assert torch.equal(rows, torch.cat([b.tokens_BT for b in t.evaluation(70)]))
    assert max(len(b.tokens_BT) for b in t.evaluation(size)) <= size


def test_callers_cannot_change_the_evaluation_items():
    t = task(eval_items=8)
    next(t.evaluation(8)).tokens_BT.zero_()
    assert next(t.evaluation(8)).tokens_BT.any()
    assert t.evaluation_hash() == task(eval_items=8).evaluation_hash()


def test_training_never_meets_an_evaluation_item_even_where_rows_are_few():
    """8,000 training rows out of 16,384 that exist: seen without the split, many would be evaluation items."""
    t = task(vocab=8, pairs=1, length=8, fillers=4, eval_items=4)
    assert t.config.distinct_rows() == 2 * 2 * 6 * 4**5
    overlap = t.overlap(seed=0, steps=20, size=1000)
    assert overlap.training > 10_000
    assert overlap.evaluation >= 3
    assert overlap.shared == 0
    # The rule that keeps them apart, asked of each side: the hash of the tokens alone decides.
    for batch in t.evaluation(4):
        assert (row_hashes(batch.tokens_BT.numpy()) % np.uint64(16) == 0).all()
    assert (row_hashes(t.train_batch(9, 9, 500).tokens_BT.numpy()) % np.uint64(16) != 0).all()


def test_overlap_is_found_where_it_exists(monkeypatch):
    t = task(eval_items=50)
    items = t._evaluation_rows
    monkeypatch.setattr(t, "_train_rows", lambda seed, step, size: items)
    assert t.overlap(0, 1, 50).shared == 50


def test_row_hashes_tell_rows_apart_and_know_order():
    rows = np.array([[1, 2, 3], [3, 2, 1], [1, 2, 4], [1, 2, 3]])
    hashes = row_hashes(rows)
    assert len(set(hashes.tolist())) == 3
    assert hashes[0] == hashes[3]
    many = np.random.default_rng(0).integers(0, 8, (20_000, 12))
    assert len(np.unique(row_hashes(many))) == len(np.unique(many, axis=0))
    share = (row_hashes(np.unique(many, axis=0)) % np.uint64(16) == 0).mean()
    assert abs(share - 1 / 16) < 0.01


@pytest.mark.parametrize(
    "change",
    [{"vocab": 50}, {"pairs": 3}, {"length": 33}, {"queries": 3}, {"fillers": 6}, {"eval_items": 511}],
)
def test_every_setting_changes_the_data(change):
    assert set(change) <= set(RecallConfig.model_fields)
    assert task(**change).evaluation_hash() != task().evaluation_hash()
    if "eval_items" not in change:
        a, b = task(**change).train_batch(0, 0, 8), task().train_batch(0, 0, 8)
        assert not (torch.equal(a.tokens_BT, b.tokens_BT) and torch.equal(a.labels_BT, b.labels_BT))


def test_every_setting_has_its_change_tested():
    tested = {"vocab", "pairs", "length", "queries", "fillers", "eval_items"}
    assert tested == set(RecallConfig.model_fields)


def test_accuracy_counts_scored_positions_whichever_classes_occur():
    t = task()
    assert t.metrics(Totals(scored=40, correct=40, loss_nats=8.0)) == {"accuracy": 1.0, "loss_nats": 0.2}
    assert t.metrics(Totals(scored=40, correct=10, loss_nats=8.0))["accuracy"] == 0.25
    with pytest.raises(ConfigError, match="0 scored positions"):
        t.metrics(Totals(scored=0, correct=0, loss_nats=0.0))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"length": 11}, "length 11 is too short for 4 pairs and 4 queries, which take 12 tokens"),
        ({"vocab": 11}, "vocab 11 is too small: 4 pairs"),
        ({"vocab": 6, "pairs": 1, "fillers": 4}, "need at least 8 token ids"),
        ({"vocab": 8, "pairs": 1, "length": 3, "fillers": 4}, "only 4 different rows exist"),
        ({"pairs": 0}, "pairs"),
        ({"num_pairs": 2}, "num_pairs"),
    ],
)
def test_settings_out_of_range_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        RecallConfig(**settings)


def test_distinct_rows_are_counted_exactly_where_they_can_be_listed():
    c = RecallConfig(vocab=6, pairs=2, length=8, queries=1, fillers=2, eval_items=1)
    found = {tuple(row) for row in Recall(c)._draw(np.random.default_rng(0), 20_000).tokens.tolist()}
    assert len(found) == c.distinct_rows() == 2 * 2**2 * 4 * 2 * 2**3


def test_positions_are_keys_values_fillers_or_queries():
    t = task(vocab=12, pairs=2, length=10, fillers=4, eval_items=64)
    batch = next(t.evaluation(64))
    found = t.classes(batch)
    assert found.names == ("key", "value", "filler", "query")
    for tokens, labels, classes in zip(
        batch.tokens_BT.tolist(), batch.labels_BT.tolist(), found.class_BT.tolist(), strict=True
    ):
        assert classes[:4] == [0, 1, 0, 1]
        assert classes[4:] == [2 if label == IGNORE else 3 for label in labels[4:]]
        # Token ids tell the same: fillers are below 4, and a query repeats one of the row's keys.
        for token, kind in zip(tokens[4:], classes[4:], strict=True):
            assert (token < 4) == (kind == 2)


def test_words_tell_keys_values_and_fillers_apart() -> None:
    task = Recall(RecallConfig(pairs=2, length=12, vocab=16))
    c = task.config
    ends = [0, c.fillers - 1, c.fillers, c.fillers + c.keys - 1, c.fillers + c.keys, c.vocab - 1]
    assert task.words(ends) == ["·", "·", "k0", f"k{c.keys - 1}", "v0", f"v{c.values - 1}"]
