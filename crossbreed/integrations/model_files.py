"""A trained model as files that other tools load: safetensors, a config, the genome, and a card. Needs none of those tools."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import to_yaml
from crossbreed.core.host import Registry
from crossbreed.core.lab.operating_points import FITTED, OperatingPoint, longest
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import mode_readers

MODEL_TYPE, CLASS = "crossbreed", "CrossbreedForCausalLM"
WEIGHTS, CONFIG, GENOME, CARD, RECORD = (
    "model.safetensors",
    "config.json",
    "genome.yaml",
    "README.md",
    "crossbreed.json",
)
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
"""Beside them where the tokens are those of a tokenizer."""
PREFIX = "model."
"""Before the names of tensors: the module that holds ours calls it ``model``."""


@dataclass(frozen=True)
class Exported:
    """What was written: file name -> SHA-256, in order."""

    folder: Path
    files: dict[str, str]
    tensors: int


def check_exportable(model: LanguageModel, point: OperatingPoint) -> tuple[tuple[int, int], ...] | None:
    """The schedule of modes that a model is to follow wherever it is loaded, as (position, mode); None: it decides itself.

    Raises ConfigError for a point that needs the length of the text, which a model in use cannot know.
    """
    if point.schedule is None:
        if point.rate is not None or point.length is not None:
            raise ConfigError(
                f"operating point {point.name!r} cannot be exported: it is a way to judge a model, and no model; own, threshold:SHIFT, "
                f"depth:L, {FITTED}ROUTERS and a schedule that counts from the start can"
            )
        return None
    for place, _ in point.schedule.switches:
        if place.from_end or place.share:
            raise ConfigError(
                f"operating point {point.name!r} cannot be exported: {place.text!r} depends on the text's length, which a model does "
                "not know while it reads; count its switches in tokens from the start"
            )
    last = max(int(place.amount) for place, _ in point.schedule.switches)
    return point.schedule.at(last + 1, mode_readers(model.architecture)).switches


def config_of(
    model: LanguageModel,
    registry: Registry,
    *,
    seed: int,
    schedule: tuple[tuple[int, int], ...] | None,
    origin: dict[str, Any],
) -> dict[str, Any]:
    """What a loader needs to build the model again; ``origin`` says where it comes from."""
    architecture = model.architecture
    limit = longest(architecture, registry)
    return {
        "architectures": [CLASS],
        "model_type": MODEL_TYPE,
        "architecture": architecture.model_dump(mode="json"),
        "plugins": registry.identities(architecture),
        "seed": seed,
        "mode_schedule": None if schedule is None else [list(switch) for switch in schedule],
        "longest": None if limit is None else limit.tokens,
        "origin": origin,
        "vocab_size": architecture.vocab,
        "hidden_size": architecture.d_model,
        "num_hidden_layers": sum(len(stage.blocks) * stage.depth.repeats for stage in architecture.stages),
        "tie_word_embeddings": False,
        "use_cache": True,
        "dtype": "float32",
    }


def write(
    folder: Path,
    model: LanguageModel,
    config: dict[str, Any],
    card: str,
    record: dict[str, Any],
    tokenizer: str | None = None,
) -> Exported:
    """Write every file, into a folder that holds none of them; ``tokenizer``: the text of a tokenizer.json. Raises ConfigError
    otherwise."""
    names = (WEIGHTS, CONFIG, GENOME, CARD, RECORD, TOKENIZER, TOKENIZER_CONFIG)
    taken = [name for name in names if (folder / name).exists()]
    if taken:
        raise ConfigError(f"folder {str(folder)!r} holds {taken[0]} already; choose another.")
    tensors = tensors_of(model)
    content = {
        WEIGHTS: save(tensors, metadata={"format": "pt"}),
        CONFIG: _json(config),
        GENOME: to_yaml(model.architecture).encode(),
        CARD: card.encode(),
        RECORD: _json(record),
    }
    if tokenizer is not None:
        content[TOKENIZER] = tokenizer.encode()
        content[TOKENIZER_CONFIG] = _json({"tokenizer_class": "PreTrainedTokenizerFast"})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in content.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise ConfigError(f"folder {str(folder)!r} cannot be written: {error.strerror}.") from error
    return Exported(
        folder, {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}, len(tensors)
    )


def tensors_of(model: LanguageModel) -> dict[str, Tensor]:
    """Parameters and all buffers, those that a checkpoint leaves out too, on the host."""
    named = {**dict(model.named_buffers()), **model.state_dict()}
    return {f"{PREFIX}{name}": tensor.detach().cpu().clone().contiguous() for name, tensor in named.items()}


def _json(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
