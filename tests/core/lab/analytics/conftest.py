"""Small float64 models with routers written by hand, and a task whose rows and classes are written out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossbreed.core.contracts.task import IGNORE, Batch, Score, Task, TokenClasses
from crossbreed.core.host import Host, PluginFile
from crossbreed.core.lab.analytics import Subject
from crossbreed.core.model.language_model import LanguageModel

ROWS, T, VOCAB = 6, 21, 23


class Listed(Task):
    """Random rows; every position whose number in its row is odd is scored. Classes: token ids below 10, and others."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.tokens_BT = torch.randint(0, VOCAB, (ROWS, T), generator=generator)
        self.labels_BT = torch.randint(0, VOCAB, (ROWS, T), generator=generator)
        self.labels_BT[:, ::2] = IGNORE

    vocab, length, score = VOCAB, T, Score("accuracy", "max", None)

    def evaluation(self, size: int) -> Iterator[Batch]:
        for start in range(0, ROWS, size):
            yield Batch(self.tokens_BT[start : start + size], self.labels_BT[start : start + size])

    def classes(self, batch: Batch) -> TokenClasses:
        groups = {"hard": ("high",), "any": ("low", "high"), "none": ()}
        return TokenClasses(("low", "high"), (batch.tokens_BT >= 10).long(), groups)

    def metrics(self, totals):
        return {"accuracy": totals.correct / totals.scored}


@pytest.fixture(scope="session")
def listed() -> Listed:
    return Listed()


@pytest.fixture(scope="session")
def routed_parts():
    return Host.load([PluginFile.read(Path(__file__).with_name("routers.py"))], third_party=False)


@pytest.fixture
def model_of(routed_parts):
    def make(architecture, seed: int = 0) -> LanguageModel:
        model = LanguageModel(architecture, routed_parts, seed=seed).double()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            model.embedding.weight.mul_(8)
        return model

    return make


@pytest.fixture
def subject_of(model_of, listed):
    def make(architecture, **changes) -> Subject:
        return Subject(model_of(architecture), listed, **{"rows": ROWS, "batch": 4} | changes)

    return make


@torch.no_grad()
def loss_of(model: LanguageModel, task: Listed, **context) -> Tensor:
    """loss_BT of the whole task by the textbook, NaN where nothing is scored."""
    h_BTD, _ = model.eval()(task.tokens_BT, model.context(task.tokens_BT, **context))
    log_p_BTV = model.logits(h_BTD).log_softmax(-1)
    picked_BT = -log_p_BTV.gather(-1, task.labels_BT.clamp(min=0)[..., None])[..., 0]
    return picked_BT.masked_fill(task.labels_BT == IGNORE, torch.nan)
