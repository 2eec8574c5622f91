from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError, Diverged
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.train import Trainer, _seed_generators

STEPS = 17


@pytest.fixture
def trainer(build, genome, task, recipe):
    def make(emit=lambda record: None, data=None, **changes) -> Trainer:
        model = build(data or genome(dropout=0.1, gate={"name": "learned"}), seed=3)
        settings = Recipe.model_validate({**recipe, "tokens": STEPS * 96, **changes})
        owner = Header(
            "a", settings.model_dump(mode="json"), {"name": "recall"}, seed=3, step=0, tokens=0, rung=0
        )
        return Trainer(model, task, settings, owner, emit)

    return make


def points(records) -> list:
    return [point for curve in records for point in curve.points]


def test_training_learns(trainer):
    records = []
    trainer(records.append, tokens=150 * 96).advance(150 * 96, lambda: False)
    found = points(records)
    assert found[-1].loss_nats < 0.9 * found[0].loss_nats


def test_points_stand_at_every_interval_and_at_the_end(trainer):
    records = []
    trainer(records.append).advance(STEPS * 96, lambda: False)
    found = points(records)
    assert [p.step for p in found] == [5, 10, 15, 17]
    assert [p.tokens for p in found] == [480, 960, 1440, 1632]
    assert all(p.grad_norm > 0 for p in found)
    assert [name.startswith("0.1.0.gate.") for name in found[0].aux] == [True]


@pytest.mark.parametrize("cut", [1, 5, 8])
def test_a_resumed_run_has_exactly_the_losses_of_an_uninterrupted_one(
    trainer, stop_after, tmp_path: Path, cut: int
):
    whole, first, second = [], [], []
    uncut = trainer(whole.append)
    uncut.advance(STEPS * 96, lambda: False)
    begun = trainer(first.append)
    assert not begun.advance(STEPS * 96, stop_after(cut))
    begun.save(Artefacts.at(tmp_path), "c.safetensors", 0)
    resumed = trainer(second.append)
    torch.manual_seed(99)  # a new process has another generator state
    assert resumed.load(Artefacts.at(tmp_path), "c.safetensors").step == cut
    resumed.advance(STEPS * 96, lambda: False)
    assert points(first) + points(second) == points(whole)
    for a, b in zip(uncut.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_rungs_do_not_change_the_losses(trainer):
    whole, parts = [], []
    trainer(whole.append).advance(STEPS * 96, lambda: False)
    by_rungs = trainer(parts.append)
    by_rungs.advance(10 * 96, lambda: False)
    by_rungs.advance(STEPS * 96, lambda: False)
    assert points(parts) == points(whole)


def test_equal_seeds_see_equal_batches_whatever_the_architecture(trainer, genome, monkeypatch):
    seen: list[tuple[int, int, int]] = []
    makers = [trainer(data=genome()), trainer(data=genome(hidden=8))]
    original = type(makers[0].task).train_batch

    def spy(task, seed, step, size):
        batch = original(task, seed, step, size)
        seen.append((seed, step, hash(batch.tokens_BT.numpy().tobytes())))
        return batch

    monkeypatch.setattr(type(makers[0].task), "train_batch", spy)
    for one in makers:
        one.advance(3 * 96, lambda: False)
    assert seen[:3] == seen[3:]
    assert len(set(seen)) == 3


def test_the_loop_is_plain_adamw_with_warm_up_cosine_and_clipping(trainer, task, genome):
    """Against a loop written out by hand, without fused kernels."""
    ours = trainer(data=genome(), clip=0.05)
    model = copy.deepcopy(ours.model)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    spared = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": spared, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), fused=False, foreach=False)
    for step in range(6):
        batch = task.train_batch(3, step, 8)
        context = model.context(batch.tokens_BT, phase="train", seed=3, step=step)
        h_BTD, _ = model(batch.tokens_BT, context)
        loss = torch.nn.functional.cross_entropy(model.logits(h_BTD).flatten(0, 1), batch.labels_BT.flatten())
        optimiser.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        assert norm > 0.05
        for p in model.parameters():
            p.grad *= 0.05 / (norm + 1e-6)
        for group in optimiser.param_groups:
            group["lr"] = ours.recipe.lr_at(step, STEPS)
        optimiser.step()
    ours.advance(6 * 96, lambda: False)
    for a, b in zip(ours.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("at", [0, 7, 16])
def test_a_loss_that_is_not_finite_names_its_step(trainer, genome, at: int):
    records = []
    broken = trainer(records.append, data=genome(fault="nan", at=at))
    with pytest.raises(Diverged, match=f"loss was nan at step {at} of 17"):
        broken.advance(STEPS * 96, lambda: False)
    assert [p.step for p in points(records)] == [s for s in (5, 10, 15) if s <= at]


def test_weights_that_are_not_finite_are_never_saved(trainer, genome, stop_after, tmp_path: Path):
    broken = trainer(data=genome(fault="nan", at=1))
    with pytest.raises(Diverged):
        broken.advance(STEPS * 96, stop_after(3))
    with pytest.raises(Diverged):
        broken.save(Artefacts.at(tmp_path), "c.safetensors", 0)
    assert not list(tmp_path.iterdir())


def test_devices_that_share_a_batch_draw_different_numbers_from_torch_and_the_first_as_one_alone():
    def drawn(step: int, rank: int) -> list[float]:
        with torch.random.fork_rng():
            _seed_generators(3, step, torch.device("cpu"), rank)
            return torch.rand(3).tolist()

    found = [drawn(step, rank) for step in (0, 1) for rank in (0, 1, 2)]
    assert len({tuple(numbers) for numbers in found}) == 6
    assert found == [drawn(step, rank) for step in (0, 1) for rank in (0, 1, 2)]


def test_training_leaves_the_callers_generator_alone(trainer):
    one = trainer()
    state = torch.get_rng_state()
    one.advance(2 * 96, lambda: False)
    assert torch.equal(torch.get_rng_state(), state)


def test_bfloat16_on_a_cpu_is_refused_and_never_ignored(trainer):
    with pytest.raises(ConfigError, match=r"'bfloat16' needs a CUDA device.*'cpu'"):
        trainer(dtype="bfloat16").advance(96, lambda: False)


def test_a_checkpoint_of_another_genome_is_refused(trainer, tmp_path: Path):
    one = trainer()
    one.save(Artefacts.at(tmp_path), "c.safetensors", 0)
    other = trainer()
    other.owner = replace(other.owner, architecture="b")
    with pytest.raises(ConfigError, match="belongs to architecture 'a', but this run has 'b'"):
        other.load(Artefacts.at(tmp_path), "c.safetensors")
