"""Checkpoints: one safetensors file holding weights, buffers and optimiser state, with what it belongs to in its header.

No generator state is kept, because batches and router draws are functions of (seed, step).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError, CrossbreedError
from crossbreed.core.lab.speeds import Settled

FORMAT = 1
SUFFIX = ".safetensors"
HEADER = "crossbreed"


@dataclass(frozen=True)
class Header:
    """Which run a checkpoint belongs to and where that run stood.

    architecture: digest of the canonical genome. recipe, task: as plain data; task includes its evaluation hash.
    pending:      (loss in nats, gradient norm) of steps whose curve point is still to come.
    metrics:      the evaluation at a rung's end; empty for a checkpoint taken in between.
    speeds:       what its mixers are built with, on the devices on which that was measured.
    """

    architecture: str
    recipe: dict[str, Any]
    task: dict[str, Any]
    seed: int
    step: int
    tokens: int
    rung: int
    pending: list[list[float]] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    speeds: Settled = field(default_factory=dict)
    format: int = FORMAT


@dataclass(frozen=True)
class Stored:
    """A checkpoint in its place."""

    name: str
    header: Header
    sha256: str
    bytes: int


class Torn(ConfigError):
    """A file that ends before a checkpoint would."""


def write(
    folder: Artefacts, name: str, model: nn.Module, optimiser: torch.optim.Optimizer | None, header: Header
) -> Stored:
    """Write a checkpoint, all of it or nothing; without an optimiser it is one to use, not to train on from."""
    held = _model_tensors(model)
    if optimiser is not None:
        held |= _optimiser_tensors(model, optimiser)
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in held.items()}
    data = save(tensors, metadata={HEADER: json.dumps(asdict(header), sort_keys=True)})
    folder.write(name, data)
    return Stored(name, header, hashlib.sha256(data).hexdigest(), len(data))


def headers(folder: Artefacts) -> dict[str, Header]:
    """The checkpoints in a run's folder by name. For the one holder of the run: what killed writers left half-written is removed.

    Raises ConfigError for a file that is no checkpoint.
    """
    folder.drop_drafts()
    found = {}
    for name in folder.names():
        if name.endswith(SUFFIX):
            try:
                found[name] = read_header(folder, name)
            except Torn:
                if folder.whole:
                    raise
                folder.delete(name)
    return found


def describe(folder: Artefacts, name: str) -> Stored:
    """What is there. Raises ConfigError when it is no checkpoint."""
    header = read_header(folder, name)
    with folder.local(name) as path, path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return Stored(name, header, sha256, path.stat().st_size)


def read_header(folder: Artefacts, name: str) -> Header:
    """The header alone, without the tensors. Raises ConfigError when the file is no checkpoint of this format, Torn when it ends
    too early.

    safetensors: 8 bytes hold the length of the index, little-endian; the index, JSON, says how long the whole file is.
    """
    try:
        size, length = folder.size(name), int.from_bytes(folder.read(name, 0, 8), "little")
        if size < 8 + length:
            raise _unreadable(folder, name, f"it has {size} bytes and an index of {length}", Torn)
        index = json.loads(folder.read(name, 8, 8 + length))
        fields = json.loads(index.pop("__metadata__")[HEADER])
        whole = 8 + length + max((entry["data_offsets"][1] for entry in index.values()), default=0)
    except (OSError, LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, CrossbreedError):
            raise
        raise _unreadable(folder, name, f"{type(error).__name__}: {error}") from error
    if size != whole:
        raise _unreadable(
            folder, name, f"it has {size} bytes of {whole}", Torn if size < whole else ConfigError
        )
    if fields.get("format") != FORMAT:
        raise ConfigError(
            f"checkpoint {folder.shown(name)!r} has format {fields.get('format')!r}; this version reads format {FORMAT}"
        )
    return Header(**fields)


def _unreadable(folder: Artefacts, name: str, why: str, kind: type[ConfigError] = ConfigError) -> ConfigError:
    where = folder.shown(name)
    return kind(f"checkpoint {where!r} cannot be read ({why}); it must be a complete crossbreed checkpoint")


def read(
    folder: Artefacts,
    name: str,
    model: nn.Module,
    optimiser: torch.optim.Optimizer | None,
    expected: Header,
) -> Header:
    """Load a checkpoint into a model (and its optimiser) in place, after checking that it is the same run's.

    ``expected`` says whose checkpoint it must be; its step and what follows are ignored. Raises ConfigError otherwise.
    """
    header, where = read_header(folder, name), folder.shown(name)
    check_owner(where, header, expected)
    with folder.local(name) as path, safe_open(path, framework="pt") as file:
        stored = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    own = _model_tensors(model)
    missing = sorted(own.keys() - stored.keys())
    if missing:
        raise ConfigError(f"checkpoint {where!r} lacks tensor {missing[0]!r} of the model")
    with torch.no_grad():
        for key, tensor in own.items():
            if stored[key].shape != tensor.shape:
                raise ConfigError(
                    f"checkpoint {where!r} holds {key!r} with shape {tuple(stored[key].shape)}; the model has {tuple(tensor.shape)}"
                )
            tensor.copy_(stored[key])
    if optimiser is not None:
        _restore_optimiser(model, optimiser, stored)
    return header


def check_owner(where: str, header: Header, expected: Header) -> None:
    """Raise ConfigError, naming the difference, unless both headers are of one architecture, task, recipe and seed."""
    for what in ("architecture", "task", "recipe", "seed"):
        found, wanted = getattr(header, what), getattr(expected, what)
        if found != wanted:
            if isinstance(found, dict):
                keys = sorted(k for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k))
                found, wanted = (
                    {k: found.get(k) for k in keys},
                    {k: wanted.get(k) for k in keys},
                )
            raise ConfigError(
                f"checkpoint {where!r} belongs to {what} {found!r}, but this run has {wanted!r}; it is another run's"
            )


def _model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers, tied ones once under their first name."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[f"model/{name}"] = tensor
    return tensors


def _optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimiser/{key}/{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def _restore_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, stored: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    optimiser.state.clear()
    for full, value in stored.items():
        head, _, rest = full.partition("/")
        if head == "optimiser":
            key, _, name = rest.partition("/")
            parameter = parameters[name]
            optimiser.state[parameter][key] = value.to(parameter.device)
