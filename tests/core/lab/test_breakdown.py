"""Losses by class of positions and along the text: sums written out by hand, and those of real evaluations."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from crossbreed.core.contracts.task import IGNORE, Batch, Score, Task, TokenClasses, Totals
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.breakdown import MOST_BINS, Breakdown
from crossbreed.core.lab.evaluate import evaluate
from crossbreed.core.lab.operating_points import OperatingPoint

RANDOM = {"name": "segment_random", "params": {"segment": 3, "probability": 0.5}}


def test_sums_by_class_and_position_are_those_written_out() -> None:
    found = Breakdown(length=3)
    classes = TokenClasses(("a", "b", "c"), torch.tensor([[0, 1, 1], [1, 0, 2]]))
    found.add(
        torch.tensor([[5, 6, IGNORE], [7, 8, IGNORE]]),
        torch.tensor([[0, 1, 2], [0, 1, 0]]),
        classes,
        torch.tensor([[1.0, 2.0, 0.0], [4.0, 8.0, 0.0]]),
        torch.tensor([[True, False, False], [True, False, False]]),
    )
    data = found.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["classes"] == [
        {"class": "a", "labelled": 2, "right": 1, "loss_nats": 9.0},
        {"class": "b", "labelled": 2, "right": 1, "loss_nats": 6.0},
        {"class": "c", "labelled": 0, "right": 0, "loss_nats": 0.0},
    ]
    assert data["positions"] == {
        "width": 1,
        "labelled": [2, 2, 0],
        "right": [2, 0, 0],
        "loss_nats": [5.0, 10.0, 0.0],
    }


@pytest.mark.parametrize(
    ("length", "width", "bins"), [(MOST_BINS, 1, 256), (MOST_BINS + 1, 2, 129), (1024, 4, 256)]
)
def test_long_texts_are_binned(length: int, width: int, bins: int) -> None:
    found = Breakdown(length)
    ones = torch.ones(1, length, dtype=torch.long)
    found.add(ones, torch.arange(length)[None], TokenClasses(("all",), 0 * ones), ones.float(), ones > 0)
    along = found.as_dict()["positions"]
    assert (along["width"], len(along["labelled"])) == (width, bins)
    assert along["labelled"][:-1] == [width] * (bins - 1)
    assert sum(along["labelled"]) == sum(along["right"]) == length


@pytest.mark.parametrize("size", [1, 7, 24])
def test_what_is_broken_down_is_what_was_scored_at_any_batch_size(build, genome, task, size: int) -> None:
    model = build(genome(gate=RANDOM))
    found, whole = evaluate(model, task, size), evaluate(model, task, 5)
    for parts in (found.breakdown["classes"], _rows(found.breakdown["positions"])):
        assert sum(part["labelled"] for part in parts) == found.totals.scored
        assert sum(part["right"] for part in parts) == found.totals.correct
        assert sum(part["loss_nats"] for part in parts) == pytest.approx(found.totals.loss_nats)
    # Recall scores queries alone.
    assert [part["labelled"] for part in found.breakdown["classes"]] == [0, 0, 0, 48]
    nats = found.breakdown["positions"]["loss_nats"]
    assert nats == pytest.approx(whole.breakdown["positions"]["loss_nats"], rel=1e-5)


def test_longer_texts_have_positions_that_training_never_saw(build, genome, task) -> None:
    point = OperatingPoint.parse("length:4")
    found = evaluate(build(genome()), point.task(task), 8, point=point)
    labelled = found.breakdown["positions"]["labelled"]
    assert len(labelled) == 48
    assert sum(labelled[12:]) > 0
    assert labelled[:4] == [0, 0, 0, 0]


class Half(Task):
    """Every token is to be said again; only even ones count. Documents of 4 tokens are packed into rows."""

    vocab, length, chance = 20, 8, 1 / 20

    def __init__(self, *on: str) -> None:
        self.on = on

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", 1.0, self.on)

    def evaluation(self, size: int) -> Iterator[Batch]:
        tokens_BT = torch.randint(0, 20, (5, 8), generator=torch.Generator().manual_seed(1))
        yield Batch(tokens_BT, tokens_BT.clone(), torch.arange(8).div(4, rounding_mode="floor").expand(5, 8))

    def classes(self, batch: Batch) -> TokenClasses:
        return TokenClasses(("even", "odd"), batch.tokens_BT % 2)

    def metrics(self, totals: Totals) -> dict[str, float]:
        return {"accuracy": totals.correct / totals.scored, "loss_nats": totals.loss_nats / totals.scored}


def test_a_score_of_some_classes_counts_them_alone_and_all_are_broken_down(build, genome) -> None:
    model = build(genome())
    everything, found = evaluate(model, Half(), 5), evaluate(model, Half("even"), 5)
    even, odd = found.breakdown["classes"]
    assert found.totals == Totals(even["labelled"], even["right"], pytest.approx(even["loss_nats"]))
    assert even["labelled"] + odd["labelled"] == everything.totals.scored == 40
    assert even["loss_nats"] + odd["loss_nats"] == pytest.approx(everything.totals.loss_nats)
    with pytest.raises(ConfigError, match="unknown class 'evem' of positions; did you mean 'even'"):
        evaluate(model, Half("evem"), 5)


def test_positions_restart_with_each_document(build, genome) -> None:
    found = evaluate(build(genome()), Half(), 5)
    assert found.breakdown["positions"]["labelled"] == [10, 10, 10, 10, 0, 0, 0, 0]


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that any operation returned."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.elements = max(self.elements, *sizes, 0)
        return result


class ManyWords(Half):
    vocab, length = 60_000, 128

    def evaluation(self, size: int) -> Iterator[Batch]:
        tokens_BT = torch.randint(0, 60_000, (2, 128), generator=torch.Generator().manual_seed(1))
        yield Batch(tokens_BT, tokens_BT.clone())


def test_the_logits_of_a_large_vocabulary_are_never_held_whole(build, genome) -> None:
    """2 x 128 x 60,000 of them would be 15 million."""
    model = build({**genome(), "vocab": 60_000})
    with Largest() as seen:
        evaluate(model, ManyWords(), 2)
    assert 60_000 <= seen.elements <= 1 << 22


def _rows(along: dict) -> list[dict]:
    return [
        dict(zip(("labelled", "right", "loss_nats"), part, strict=True))
        for part in zip(along["labelled"], along["right"], along["loss_nats"], strict=True)
    ]
