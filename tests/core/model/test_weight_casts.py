"""Weights in the dtype of products: cast once a training pass, at whatever depths and in whatever parts they are used."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crossbreed.core.contracts.task import Batch
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.ops import routed_linear
from tests.support.miniatures import BODIES, V


class Casts(TorchDispatchMode):
    """Counts how often each number of each weight is cast to bfloat16: a Counter by name, of whole weights' worth."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.weights = {p.untyped_storage()._cdata: (name, p) for name, p in model.named_parameters()}
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        if function is torch.ops.aten._to_copy.default and found.dtype == torch.bfloat16:
            name, weight = self.weights.get(args[0].untyped_storage()._cdata, ("", None))
            if weight is not None:
                self.seen[name] += args[0].numel() / weight.numel()
        return found


def train(model: LanguageModel) -> Counter[str]:
    tokens_BT = torch.randint(V, (2, 17), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens_BT, tokens_BT.roll(-1, 1), None)
    with Casts(model) as casts:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model.loss(batch, model.context(tokens_BT, phase="train", labels_BT=batch.labels_BT))
        loss.objective.backward()
    return casts.seen


@pytest.mark.parametrize("grouped", [False, True])
def test_a_recurrent_stage_casts_each_weight_once_a_pass(registry, monkeypatch, grouped):
    # As on a CUDA device, by the grouped product that PyTorch has on a CPU, too.
    monkeypatch.setattr(routed_linear, "_grouped", lambda x_ND: grouped)
    model = LanguageModel(BODIES["dreamer"], registry, seed=0)
    assert model.stages[0].depths == 3
    seen = train(model)
    experts = {name for name, _ in model.named_parameters() if name.endswith(("EDF", "EFD", "EDC", "ECD"))}
    assert len(experts) == 7
    assert experts <= set(seen)
    assert all(count == pytest.approx(1) for count in seen.values()), seen
    assert train(model) == seen


@pytest.mark.parametrize("name", ["dreamer", "amor", "oryx"])
def test_gradients_under_shared_casts_are_those_of_float64(registry, name):
    """bfloat16 rounds; what is lost or counted twice is off by far more."""
    model, wide = (LanguageModel(BODIES[name], registry, seed=0) for _ in range(2))
    train(model)
    tokens_BT = torch.randint(V, (2, 17), generator=torch.Generator().manual_seed(0))
    batch, wide = Batch(tokens_BT, tokens_BT.roll(-1, 1), None), wide.double()
    wide.loss(batch, wide.context(tokens_BT, phase="train", labels_BT=batch.labels_BT)).objective.backward()
    own, exact = (
        torch.cat([p.grad.double().flatten() for p in m.parameters() if p.grad is not None])
        for m in (model, wide)
    )
    assert (own - exact).norm() < 0.05 * exact.norm()
