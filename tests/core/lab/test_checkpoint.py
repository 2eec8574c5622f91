from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab import checkpoint
from crossbreed.core.lab.checkpoint import Header

OWNER = Header(
    architecture="a" * 64, recipe={"lr": 0.1}, task={"name": "recall"}, seed=0, step=0, tokens=0, rung=0
)


class Tied(nn.Module):
    """Tied weights and a buffer, as a language model has."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(3, 5, bias=False)
        self.outward = nn.Linear(3, 5, bias=False)
        self.outward.weight = self.inward.weight
        self.register_buffer("mu", torch.tensor(0.25))


def trained(seed: int = 0) -> tuple[Tied, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = Tied()
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        model.outward(torch.randn(4, 3)).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    model.mu += seed
    return model, optimiser


def test_everything_comes_back_and_ties_stay(tmp_path: Path):
    model, optimiser = trained(1)
    header = replace(OWNER, step=3, tokens=12, pending=[[0.1 + 0.2, 1 / 3]], metrics={"accuracy": 0.5})
    stored = checkpoint.write(place := Artefacts.at(tmp_path), "deep/c.safetensors", model, optimiser, header)
    other, other_optimiser = trained(2)
    assert checkpoint.read(place, stored.name, other, other_optimiser, OWNER) == header
    assert other.outward.weight is other.inward.weight
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)
    for key, value in optimiser.state[model.inward.weight].items():
        assert torch.equal(other_optimiser.state[other.inward.weight][key], value)


def test_the_hash_is_that_of_the_file_and_nothing_else_is_left(tmp_path: Path):
    stored = checkpoint.write(Artefacts.at(tmp_path), "c.safetensors", *trained(), OWNER)
    data = (tmp_path / stored.name).read_bytes()
    assert (stored.sha256, stored.bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    assert checkpoint.describe(Artefacts.at(tmp_path), stored.name) == stored
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stored = checkpoint.write(Artefacts.at(tmp_path), "c.safetensors", *trained(), OWNER)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        checkpoint.write(Artefacts.at(tmp_path), stored.name, *trained(1), replace(OWNER, step=9))
    assert checkpoint.describe(Artefacts.at(tmp_path), stored.name) == stored
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_writer_left_half_written_is_dropped_and_whole_files_stay(tmp_path: Path):
    whole = checkpoint.write(Artefacts.at(tmp_path), "rung-0.safetensors", *trained(), OWNER)

    def write() -> None:
        os.fsync = lambda file: os.kill(os.getpid(), signal.SIGKILL)
        checkpoint.write(Artefacts.at(tmp_path), "rung-1.safetensors", *trained(), OWNER)

    writer = multiprocessing.get_context("fork").Process(target=write)
    writer.start()
    writer.join(30)
    assert writer.exitcode == -signal.SIGKILL
    (left,) = set(tmp_path.iterdir()) - {tmp_path / whole.name}
    assert left.name == f".rung-1.safetensors.{writer.pid}"
    assert checkpoint.headers(Artefacts.at(tmp_path)) == {whole.name: OWNER}
    assert list(tmp_path.iterdir()) == [tmp_path / whole.name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architecture": "b" * 64}, "belongs to architecture"),
        ({"recipe": {"lr": 0.2}}, "recipe {'lr': 0.1}"),
        ({"seed": 1}, "belongs to seed 0, but this run has 1"),
        ({"task": {"name": "bytes"}}, "task {'name': 'recall'}"),
    ],
)
def test_another_runs_checkpoint_is_refused_with_the_difference(tmp_path: Path, change: dict, words: str):
    model, optimiser = trained()
    stored = checkpoint.write(Artefacts.at(tmp_path), "c.safetensors", model, optimiser, OWNER)
    before = model.inward.weight.clone()
    with pytest.raises(ConfigError) as caught:
        checkpoint.read(Artefacts.at(tmp_path), stored.name, model, optimiser, replace(OWNER, **change))
    assert words in str(caught.value)
    assert torch.equal(model.inward.weight, before)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path):
    path = tmp_path / "c.safetensors"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ConfigError, match="cannot be read"):
        checkpoint.read_header(Artefacts.at(tmp_path), path.name)


def test_a_torn_file_is_refused(tmp_path: Path):
    stored = checkpoint.write(Artefacts.at(tmp_path), "c.safetensors", *trained(), OWNER)
    (tmp_path / stored.name).write_bytes((tmp_path / stored.name).read_bytes()[:-7])
    with pytest.raises(ConfigError, match="cannot be read"):
        checkpoint.read_header(Artefacts.at(tmp_path), stored.name)


def test_other_shapes_are_refused_by_name(tmp_path: Path):
    stored = checkpoint.write(Artefacts.at(tmp_path), "c.safetensors", *trained(), OWNER)
    model = Tied()
    model.inward.weight = model.outward.weight = nn.Parameter(torch.zeros(5, 4))
    with pytest.raises(
        ConfigError, match=r"'model/inward.weight' with shape \(5, 3\); the model has \(5, 4\)"
    ):
        checkpoint.read(Artefacts.at(tmp_path), stored.name, model, None, OWNER)


def test_half_a_checkpoint_in_a_store_is_none_and_goes(tmp_path: Path):
    stored = Artefacts.at(f"memory://{tmp_path.name}")
    checkpoint.write(stored, "rung-0.safetensors", *trained(), replace(OWNER, step=3))
    checkpoint.write(stored, "rung-1.safetensors", *trained(), OWNER)
    data = stored.read("rung-1.safetensors")
    for cut in (0, 5, 8, 40, len(data) - 1):
        stored.write("rung-1.safetensors", data[:cut])
        with pytest.raises(ConfigError, match="it must be a complete crossbreed checkpoint"):
            checkpoint.read(stored, "rung-1.safetensors", *trained(), OWNER)
        assert checkpoint.headers(stored) == {"rung-0.safetensors": replace(OWNER, step=3)}
        assert stored.names() == ["rung-0.safetensors"]
    # What was never ours, or has more to it, is not swept away with it.
    stored.write("rung-1.safetensors", data + b"x")
    with pytest.raises(ConfigError, match=r"it has \d+ bytes of \d+"):
        checkpoint.headers(stored)
