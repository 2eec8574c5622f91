"""Training steps that are recorded once and replayed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, PluginFile
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.passes import _Step, _StepRead, _Words
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.train import Trainer
from crossbreed.core.model.language_model import LanguageModel

STEPS = 12
MIXERS: dict[str, dict[str, Any]] = {
    "attention": {"heads": 2, "head_size": 16},
    "mamba2": {"heads": 4, "head_size": 16, "state_size": 16},
    "gated_deltanet": {"heads": 2, "key_size": 16, "value_size": 16},
    "experts": {"experts": 4, "hidden": 16},
    "multi_mixer": {"readers": ["mamba2", "attention"], "heads": 2, "head_size": 16},
}
ROUTERS: dict[str, dict[str, Any]] = {
    "segment_random": {"segment": 1, "probability": 0.4},
    "entropy_gate": {},
    "learned": {"target_rate": 0.4, "loss_weight": 0.1},
}
WAITING = Path(__file__).with_name("waiting_parts.py")


def architecture(mixer: str, gate: str | None = None) -> dict[str, Any]:
    mode = {"name": "segment_random", "params": {"segment": 4}} if mixer == "multi_mixer" else None
    router = gate and {"name": gate, "params": ROUTERS[gate]}
    mixing = {"sublayers": [{"mixer": mixer, "params": MIXERS.get(mixer, {})}]}
    blocks = [
        mixing,
        {**mixing, "gate": router},
        {"sublayers": [{"mixer": "swiglu", "params": {"hidden": 64}}]},
    ]
    return {"vocab": 20, "d_model": 32, "stages": [{"blocks": blocks}], "mode_router": mode}


def trainer_of(data: dict[str, Any], parts, recipe, task, *, captured: bool, **changes: Any):
    """(trainer on the GPU, the points of its curve)"""
    settings = Recipe.model_validate({**recipe, "tokens": STEPS * 96, "log_every": 1, **changes})
    model = LanguageModel(parts.canonical(Architecture.model_validate(data)), parts, seed=3).to("cuda")
    owner = Header(
        "a", settings.model_dump(mode="json"), {"name": "recall"}, seed=3, step=0, tokens=0, rung=0
    )
    points: list[Any] = []
    made = Trainer(
        model, task, settings, owner, lambda record: points.extend(record.points), captured=captured
    )
    return made, points


def trained(*args: Any, **options: Any):
    made, points = trainer_of(*args, **options)
    made.advance(STEPS * 96, lambda: False)
    return made, points


def test_counters_in_memory_give_the_numbers_that_seed_and_step_give():
    index_BT = torch.arange(12).view(2, 6)
    words = _Words(5, torch.device("cpu"))
    for step in (0, 3):
        plain = Context(positions_BT=index_BT, row_id_B=torch.arange(2), seed=5, step=step)
        for site in ("0.0.0.gate", "mode"):
            words.set(step)
            got = plain.at(words=words, step=0).uniform(site, index_BT)
            assert torch.equal(got, plain.uniform(site, index_BT))


@pytest.mark.parametrize(
    "read", [lambda s: s == 3, lambda s: s % 2, lambda s: f"{s}", bool, int, float, lambda s: 1 - s, hash]
)
def test_nothing_looks_at_the_number_of_a_recorded_step(read):
    with pytest.raises(_StepRead, match=r"context\.step"):
        read(_Step())


def test_statistics_that_were_taken_out_and_given_back_are_committed_as_if_they_had_stayed(build, genome):
    commits = []
    for moved in (False, True):
        model = build(genome(gate={"name": "entropy_gate"}), seed=1)
        tokens_BT = torch.randint(20, (4, 12), generator=torch.Generator().manual_seed(0))
        model.loss(Batch(tokens_BT, tokens_BT), model.context(tokens_BT, phase="train", labels_BT=tokens_BT))
        if moved:
            taken = model.take_statistics()
            model.give_statistics(taken)
        model.after_step()
        commits.append({name: buffer.clone() for name, buffer in model.named_buffers()})
    assert commits[0].keys() == commits[1].keys() > set()
    for name, buffer in commits[0].items():
        assert torch.equal(buffer, commits[1][name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("mixer", "gate"), [*((mixer, None) for mixer in MIXERS), *(("attention", gate) for gate in ROUTERS)]
)
def test_replayed_steps_train_as_plain_ones_do(parts, recipe, task, mixer, gate, dtype):
    if (mixer, dtype) == ("experts", "float32"):
        pytest.skip(
            "experts are multiplied one by one in float32, and the host has to know how many rows each has"
        )
    data = architecture(mixer, gate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replayed, points = trained(data, parts, recipe, task, captured=True, dtype=dtype)
    plain, wanted = trained(data, parts, recipe, task, captured=False, dtype=dtype)
    assert replayed._pass.replaying
    tolerance = 1e-4 if dtype == "float32" else 0.02
    assert [p.loss_nats for p in points] == pytest.approx([p.loss_nats for p in wanted], rel=tolerance)
    assert [p.aux for p in points] == [pytest.approx(p.aux, rel=0.05, abs=1e-4) for p in wanted]
    for (name, got), other in zip(replayed.model.named_buffers(), plain.model.buffers(), strict=True):
        assert torch.allclose(got.double(), other.double(), rtol=10 * tolerance, atol=1e-3), name


@pytest.mark.gpu
def test_what_torch_draws_itself_differs_from_step_to_step_as_it_does_plainly(parts, recipe, task):
    # The mixer of these tests looks at the step's number; this one only drops out.
    registry = Host.load([PluginFile.read(WAITING)], third_party=False)
    data = architecture("dropping")
    replayed, points = trained(data, registry, recipe, task, captured=True)
    _, wanted = trained(data, registry, recipe, task, captured=False)
    assert replayed._pass.replaying
    assert [p.loss_nats for p in points] == pytest.approx([p.loss_nats for p in wanted], rel=1e-4)


@pytest.mark.gpu
def test_a_run_that_goes_on_from_a_checkpoint_replays_the_same_steps(parts, recipe, task, tmp_path):
    data = architecture("attention", "segment_random")
    _, wanted = trained(data, parts, recipe, task, captured=True)
    begun, _ = trainer_of(data, parts, recipe, task, captured=True)
    begun.advance(7 * 96, lambda: False)
    begun.save(Artefacts.at(tmp_path), "a.safetensors", 0)
    resumed, points = trainer_of(data, parts, recipe, task, captured=True)
    resumed.load(Artefacts.at(tmp_path), "a.safetensors")
    resumed.advance(STEPS * 96, lambda: False)
    assert [p.loss_nats for p in points] == pytest.approx([p.loss_nats for p in wanted[7:]], rel=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize(("mixer", "why"), [("waiting", "synchroniz"), ("counting", r"context\.step")])
def test_a_part_that_cannot_be_recorded_is_said_and_trains_plainly(recipe, task, mixer, why):
    registry = Host.load([PluginFile.read(WAITING)], third_party=False)
    data = architecture(mixer)
    with pytest.warns(RuntimeWarning, match=f"kernel by kernel: .*{why}"):
        made, points = trained(data, registry, recipe, task, captured=True)
    _, wanted = trained(data, registry, recipe, task, captured=False)
    assert not made._pass.replaying
    assert [p.loss_nats for p in points] == pytest.approx([p.loss_nats for p in wanted], rel=1e-4)


@pytest.mark.gpu
def test_a_part_that_changes_behind_the_recording_is_found_out(recipe, task):
    registry = Host.load([PluginFile.read(WAITING)], third_party=False)
    data = architecture("drifting")
    with pytest.warns(RuntimeWarning, match="other numbers than the pass itself"):
        made, points = trained(data, registry, recipe, task, captured=True)
    assert not made._pass.replaying
    assert len(points) == STEPS
