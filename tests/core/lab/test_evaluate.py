from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, Score, Task, Totals
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.evaluate import evaluate
from crossbreed.core.lab.operating_points import OperatingPoint

RANDOM = {"name": "segment_random", "params": {"segment": 3, "probability": 0.5}}


class Listed(Task):
    """Evaluation rows written out."""

    def __init__(self, tokens_BT: Tensor, labels_BT: Tensor) -> None:
        self.tokens_BT, self.labels_BT = tokens_BT, labels_BT

    vocab = 20

    @property
    def length(self) -> int:
        return self.tokens_BT.shape[1]

    @property
    def score(self) -> Score:
        return Score("accuracy", "max", 1.0)

    def evaluation(self, size: int) -> Iterator[Batch]:
        for start in range(0, len(self.tokens_BT), size):
            yield Batch(self.tokens_BT[start : start + size], self.labels_BT[start : start + size])

    def metrics(self, totals: Totals) -> dict[str, float]:
        return {"accuracy": totals.correct / totals.scored}


@torch.no_grad()
def predictions(model, tokens_BT: Tensor) -> Tensor:
    h_BTD, _ = model.eval()(tokens_BT, model.context(tokens_BT))
    return model.logits(h_BTD).argmax(-1)


def some_rows(rows: int, length: int = 7) -> Tensor:
    return torch.randint(0, 20, (rows, length), generator=torch.Generator().manual_seed(3))


def test_a_perfect_predictor_scores_one_though_most_classes_are_absent(build, genome):
    model, tokens_BT = build(genome()), some_rows(5)
    task = Listed(tokens_BT, predictions(model, tokens_BT))
    found = evaluate(model, task, 2)
    assert (found.score, found.totals.scored, found.totals.correct) == (1.0, 35, 35)


def test_ignored_positions_count_nowhere(build, genome):
    model, tokens_BT = build(genome()), some_rows(4)
    labels_BT = predictions(model, tokens_BT)
    labels_BT[:, ::2] = IGNORE
    labels_BT[0, 1] = (labels_BT[0, 1] + 1) % 20
    labels_BT[3] = IGNORE
    found = evaluate(model, Listed(tokens_BT, labels_BT), 3)
    assert (found.totals.scored, found.totals.correct) == (9, 8)
    assert (found.rows, found.unscored_rows) == (4, 1)


def test_the_loss_is_the_sum_of_negative_log_likelihoods(build, genome):
    model, tokens_BT = build(genome()), some_rows(3)
    labels_BT = some_rows(3).roll(1, 0)
    with torch.no_grad():
        h_BTD, _ = model(tokens_BT, model.context(tokens_BT))
        log_BTV = model.logits(h_BTD).double().log_softmax(-1)
    expected = -log_BTV.gather(-1, labels_BT[..., None]).sum().item()
    assert evaluate(model, Listed(tokens_BT, labels_BT), 2).totals.loss_nats == pytest.approx(
        expected, rel=1e-5
    )


def test_labels_all_ignored_are_a_sentence_and_no_nan(build, genome):
    tokens_BT = some_rows(3)
    with pytest.raises(ConfigError, match="scores no position in its 3 evaluation rows"):
        evaluate(build(genome()), Listed(tokens_BT, torch.full_like(tokens_BT, IGNORE)), 2)


def test_an_empty_evaluation_set_is_a_sentence(build, genome):
    tokens_BT = some_rows(0)
    with pytest.raises(ConfigError, match="scores no position in its 0 evaluation rows"):
        evaluate(build(genome()), Listed(tokens_BT, tokens_BT), 2)


@pytest.mark.parametrize("size", [1, 8, 24, 32])
def test_batch_size_changes_neither_score_nor_decisions(build, genome, task, size: int):
    model = build(genome(gate=RANDOM))
    whole, found = evaluate(model, task, 7), evaluate(model, task, size)
    assert found.totals.scored == whole.totals.scored == 48
    assert found.totals.loss_nats == pytest.approx(whole.totals.loss_nats, rel=1e-6)
    assert abs(found.totals.correct - whole.totals.correct) <= 1
    assert found.rates == whole.rates


def test_rates_are_those_realised_per_depth(build, genome, task):
    data = genome(gate=RANDOM)
    data["stages"][0]["depth"] = {"name": "recurrent", "repeats": 2}
    rates = evaluate(build(data), task, 8).rates
    assert set(rates) == {"0.1.0.gate", "0.1.1.gate"}
    assert all(0.3 < share[1] < 0.7 and sum(share) == pytest.approx(1) for share in rates.values())


def test_a_forced_point_replaces_the_models_own_decisions(build, genome, task):
    model = build(genome(gate=RANDOM))
    skipped, run = (evaluate(model, task, 8, point=OperatingPoint.parse(f"forced:{r}")) for r in (0, 1))
    assert skipped.rates["0.1.0.gate"] == (1.0, 0.0)
    assert run.rates["0.1.0.gate"] == (0.0, 1.0)
    assert skipped.totals.loss_nats != run.totals.loss_nats
