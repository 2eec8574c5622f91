"""Files are read as weights alone, and what they are not is a sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.foreign.files import read

WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(2.5)}


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


def shards(folder: Path, suffix: str, save) -> Path:
    names = {key: f"part-{i}{suffix}" for i, key in enumerate(WEIGHTS)}
    for key, name in names.items():
        save({key: WEIGHTS[key]}, folder / name)
    stem = "model.safetensors" if suffix == ".safetensors" else "pytorch_model.bin"
    (folder / f"{stem}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return folder


@pytest.mark.parametrize("how", ["file", "folder", "wrapped", "safe shards", "torch shards"])
def test_every_way_of_keeping_weights_reads_the_same(tmp_path: Path, how: str) -> None:
    if how == "file":
        save_file(WEIGHTS, path := tmp_path / "any.safetensors")
    elif how == "folder":
        torch.save(WEIGHTS, tmp_path / "pytorch_model.bin")
        path = tmp_path
    elif how == "wrapped":
        torch.save({"state_dict": WEIGHTS}, path := tmp_path / "w.pt")
    elif how == "safe shards":
        path = shards(tmp_path, ".safetensors", save_file)
    else:
        path = shards(tmp_path, ".bin", torch.save)
    (tmp_path / "config.json").write_text('{"x": 1, "y": 2}')
    found = read(path, {"y": 3})
    assert found.tensors.keys() == WEIGHTS.keys()
    assert all(torch.equal(found.tensors[key], value) for key, value in WEIGHTS.items())
    assert found.config == {"x": 1, "y": 3}


def test_a_file_that_would_run_something_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    torch.save({"a": Trap(tmp_path / "sprung")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="cannot be read as weights alone") as caught:
        read(tmp_path)
    assert "weights_only" not in str(caught.value), "PyTorch's advice to run it is not passed on"
    assert not (tmp_path / "sprung").exists()


def test_what_is_no_checkpoint_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds none of model\.safetensors"):
        read(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        read(tmp_path / "nowhere")
    (tmp_path / "model.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(ConfigError, match="cannot be read as weights alone"):
        read(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    index = shards(tmp_path, ".safetensors", save_file)
    (tmp_path / "part-1.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"names the shard 'part-1\.safetensors', which does not exist"):
        read(index)
    torch.save({"a": 3}, tmp_path / "n.bin")
    with pytest.raises(ConfigError, match="something other than tensors"):
        read(tmp_path / "n.bin")


def test_unknown_formats_say_what_is_looked_for(tmp_path: Path, imported) -> None:
    save_file(WEIGHTS, tmp_path / "w.safetensors")
    with pytest.raises(
        ConfigError, match=r"no known format: amor has 'amor_blocks\.0\.raw_alpha'; mamba2 has"
    ):
        imported(tmp_path / "w.safetensors")
    with pytest.raises(UnknownName, match="did you mean 'mamba2'"):
        imported(tmp_path / "w.safetensors", "mamba")
    with pytest.raises(ConfigError, match="lacks tensor"):
        imported(tmp_path / "w.safetensors", "mamba2")
