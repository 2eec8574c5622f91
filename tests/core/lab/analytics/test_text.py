"""The beginning of the text with what was decided, read and paid at each word."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.lab.analytics import text as text_module
from crossbreed.core.lab.analytics.observation import observe
from crossbreed.core.lab.analytics.text import text
from tests.core.lab.analytics.conftest import ROWS, T, loss_of
from tests.support.genomes import ATTENTION, SWIGLU, architecture, block, gate

GATED = architecture(
    {"blocks": [block(ATTENTION, gate=gate("unsure", above=0.4)), block(SWIGLU, gate=gate("every", n=3))]}
)


def test_each_word_has_its_decisions_entropy_and_loss(subject_of, listed):
    subject = subject_of(GATED)
    found = text(observe(subject), subject.model.sites(), subject.task)
    assert found["length"] == T
    assert found["words"] == [str(token) for token in listed.tokens_BT.flatten().tolist()]
    assert [found["classes"][n] for n in found["class"]] == [
        "low" if token < 10 else "high" for token in listed.tokens_BT.flatten().tolist()
    ]
    scored = [t % 2 == 1 for _ in range(ROWS) for t in range(T)]
    assert [loss is not None for loss in found["loss_nats"]] == scored
    expected = loss_of(subject.model, listed)[torch.tensor(scored).view(ROWS, T)].tolist()
    assert [loss for loss in found["loss_nats"] if loss is not None] == pytest.approx(expected)
    unsure, every = found["sites"]
    assert every["choice"] == [int(t % 3 == 0) for _ in range(ROWS) for t in range(T)]
    assert every["entropy"] is None
    assert unsure["choice"] == [int(h > 0.4) for h in unsure["entropy"]]
    assert all(unsure["asked"])


@pytest.mark.parametrize(("most", "length", "rows"), [(2 * T + 1, T, 2), (T - 2, T - 2, 1)])
def test_whole_rows_are_kept_or_the_beginning_of_one(subject_of, monkeypatch, most, length, rows):
    monkeypatch.setattr(text_module, "MOST_TOKENS", most)
    subject = subject_of(GATED)
    found = text(observe(subject), subject.model.sites(), subject.task)
    assert found["length"] == length
    for values in (found["words"], found["class"], found["loss_nats"], found["sites"][0]["choice"]):
        assert len(values) == length * rows
