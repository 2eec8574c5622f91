"""Every system and every rival learns: 50 steps of recall by the lab's own training loop."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.host import Registry
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.records import Record
from crossbreed.core.lab.train import Trainer
from crossbreed.core.model.language_model import LanguageModel
from tests.support.miniatures import trainable
from tests.support.records import points

STEPS, BATCH, LENGTH, VOCAB = 50, 16, 16, 24
MINIATURES = trainable(VOCAB)
NO_OWNER = Header(architecture="", recipe={}, task={}, seed=0, step=0, tokens=0, rung=0)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", MINIATURES)
def test_fifty_steps_of_recall_lower_the_loss(registry: Registry, name: str) -> None:
    params = {"vocab": VOCAB, "pairs": 2, "length": LENGTH, "eval_items": 8}
    task = registry.factory("task", "recall")(registry.config("task", "recall", params))
    recipe = Recipe(tokens=STEPS * BATCH * LENGTH, batch=BATCH, lr=1e-2, log_every=10)
    records: list[Record] = []
    model = LanguageModel(registry.canonical(MINIATURES[name]), registry)
    Trainer(model, task, recipe, NO_OWNER, records.append).advance(recipe.tokens, lambda: False)
    losses = [point.loss_nats for point in points(records)]
    assert len(losses) == STEPS / 10
    # Knowing which ids are values takes ln 10 = 2.3 nats from ln 24 = 3.2; every family gets there and begins to recall.
    assert losses[-1] < 0.85 * losses[0]
    assert losses[-1] < 2.4
