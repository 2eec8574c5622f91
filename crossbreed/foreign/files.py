"""Reading weights as weights alone: safetensors or torch files, in one piece or in shards beside an index."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from crossbreed.core.errors import ConfigError

NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""What is looked for in a folder, in this order."""
CONFIG = "config.json"
WRAPPERS = ("state_dict", "model")
"""Keys under which training scripts keep the weights."""


@dataclass(frozen=True)
class Source:
    """Tensors by key and the settings beside them. ``path`` is for messages."""

    path: Path
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any]

    def shape(self, key: str) -> tuple[int, ...]:
        """Raises ConfigError when there is no such tensor."""
        if key not in self.tensors:
            raise ConfigError(f"checkpoint {str(self.path)!r} lacks tensor {key!r}.")
        return tuple(self.tensors[key].shape)

    def count(self, before: str, after: str) -> int:
        """How many numbered layers there are: the first n for which ``before + n + after`` is no key."""
        n = 0
        while f"{before}{n}{after}" in self.tensors:
            n += 1
        return n

    def setting(self, name: str, default: Any) -> Any:
        """A setting of config.json (or of --set), or the default of the code that wrote the checkpoint."""
        value = self.config.get(name)
        return default if value is None else value

    def refuse_unless(self, name: str, accepted: tuple[Any, ...], default: Any) -> None:
        """Raise ConfigError for a setting with a meaning that no part here has."""
        value = _plain(self.setting(name, default))
        if value not in accepted:
            shown = " or ".join(map(repr, accepted))
            raise ConfigError(
                f"{CONFIG} of {str(self.path)!r} has {name} {value!r}, which is not supported; it must be {shown}."
            )


def read(path: Path, settings: Mapping[str, Any] | None = None) -> Source:
    """A checkpoint: a file of weights, or a folder with one under its usual name. ``settings`` go over config.json.

    Raises ConfigError for a path that holds none, for a file that is not weights alone, and for a missing shard.
    """
    file = path if path.is_file() else _inside(path)
    config_file = file.parent / CONFIG
    config = _json(config_file) if config_file.is_file() else {}
    return Source(path, _tensors(file), {**config, **(settings or {})})


def _inside(folder: Path) -> Path:
    for name in NAMES:
        if (folder / name).is_file():
            return folder / name
    what = "holds none of " + ", ".join(NAMES) if folder.is_dir() else "does not exist"
    raise ConfigError(f"{str(folder)!r} {what}; give a file of weights, or the folder of a model.")


def _tensors(file: Path) -> dict[str, Tensor]:
    if file.suffix == ".json":
        shards = sorted(set(_json(file).get("weight_map", {}).values()))
        if not shards:
            raise ConfigError(f"index {str(file)!r} has no weight_map with shards.")
        found: dict[str, Tensor] = {}
        for shard in shards:
            # An index names files beside it, never elsewhere.
            place = file.parent / Path(shard).name
            if not place.is_file():
                raise ConfigError(f"index {str(file)!r} names the shard {shard!r}, which does not exist.")
            found |= _tensors(place)
        return found
    try:
        held = load_file(file) if file.suffix == ".safetensors" else _unpickled(file)
    except (SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError, OSError) as error:
        # The first sentence: PyTorch goes on to say how to read the file by running it.
        why = str(error).splitlines()[0].partition(". ")[0].rstrip(".")
        raise ConfigError(
            f"{str(file)!r} cannot be read as weights alone ({type(error).__name__}: {why})."
        ) from error
    return held


def _unpickled(file: Path) -> dict[str, Tensor]:
    held = torch.load(file, map_location="cpu", weights_only=True)
    for wrapper in WRAPPERS:
        if isinstance(held, dict) and isinstance(held.get(wrapper), dict):
            held = held[wrapper]
    if not isinstance(held, dict) or not all(isinstance(v, Tensor) for v in held.values()):
        raise ConfigError(f"{str(file)!r} holds something other than tensors by name.")
    return held


def _json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{str(file)!r} is not readable JSON: {error}.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{str(file)!r} does not hold a JSON object.")
    return data


def _plain(value: Any) -> Any:
    """Lists as tuples, and the infinity of transformers' config files as a number."""
    if isinstance(value, dict) and set(value) == {"__float__"}:
        return float(value["__float__"])
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return value


UNLIMITED = (0.0, math.inf)
"""Time steps that are never cut."""
