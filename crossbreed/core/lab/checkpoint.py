"""Checkpoints: one safetensors file holding weights, buffers and optimiser state, with what it belongs to in its header.

A file is complete or absent: it is written beside its place, flushed to the disk and renamed. No generator state is
kept, because batches and router draws are functions of (seed, step).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from crossbreed.core.errors import ConfigError

FORMAT = 1
SUFFIX = ".safetensors"
HEADER = "crossbreed"
DRAFT = "."
"""What the name of a file begins with that is still to be renamed."""


@dataclass(frozen=True)
class Header:
    """Which run a checkpoint belongs to and where that run stood.

    architecture: digest of the canonical genome. recipe, task: as plain data; task includes its evaluation hash.
    pending:      (loss in nats, gradient norm) of steps whose curve point is still to come.
    metrics:      the evaluation at a rung's end; empty for a checkpoint taken in between.
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
    format: int = FORMAT


@dataclass(frozen=True)
class Stored:
    """A checkpoint on disk."""

    path: Path
    header: Header
    sha256: str
    bytes: int


def write(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer | None, header: Header) -> Stored:
    """Write a checkpoint atomically; without an optimiser it is one to use, not to train on from."""
    held = _model_tensors(model)
    if optimiser is not None:
        held |= _optimiser_tensors(model, optimiser)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in held.items()}
    data = save(tensors, metadata={HEADER: json.dumps(asdict(header), sort_keys=True)})
    path.parent.mkdir(parents=True, exist_ok=True)
    # The process id keeps two holders of one run apart; each renames a complete file.
    draft = path.with_name(f"{DRAFT}{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return Stored(path, header, hashlib.sha256(data).hexdigest(), len(data))


def drop_drafts(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left behind. For the one holder of a run."""
    for draft in folder.glob(f"{DRAFT}*{SUFFIX}.*"):
        draft.unlink(missing_ok=True)


def describe(path: Path) -> Stored:
    """What is on disk. Raises ConfigError when it is no checkpoint."""
    header = read_header(path)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Stored(path, header, sha256, path.stat().st_size)


def read_header(path: Path) -> Header:
    """The header alone. Raises ConfigError when the file is no checkpoint of this format."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        fields = json.loads(metadata[HEADER])
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ConfigError(
            f"checkpoint {str(path)!r} cannot be read ({type(error).__name__}: {error}); it must be a complete crossbreed checkpoint"
        ) from error
    if fields.get("format") != FORMAT:
        raise ConfigError(
            f"checkpoint {str(path)!r} has format {fields.get('format')!r}; this version reads format {FORMAT}"
        )
    return Header(**fields)


def read(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer | None, expected: Header) -> Header:
    """Load a checkpoint into a model (and its optimiser) in place, after checking that it is the same run's.

    ``expected`` says whose checkpoint it must be; its step and what follows are ignored. Raises ConfigError otherwise.
    """
    header = read_header(path)
    check_owner(path, header, expected)
    with safe_open(path, framework="pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    own = _model_tensors(model)
    missing = sorted(own.keys() - stored.keys())
    if missing:
        raise ConfigError(f"checkpoint {str(path)!r} lacks tensor {missing[0]!r} of the model")
    with torch.no_grad():
        for name, tensor in own.items():
            if stored[name].shape != tensor.shape:
                raise ConfigError(
                    f"checkpoint {str(path)!r} holds {name!r} with shape {tuple(stored[name].shape)}; the model has {tuple(tensor.shape)}"
                )
            tensor.copy_(stored[name])
    if optimiser is not None:
        _restore_optimiser(model, optimiser, stored)
    return header


def check_owner(path: Path, header: Header, expected: Header) -> None:
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
                f"checkpoint {str(path)!r} belongs to {what} {found!r}, but this run has {wanted!r}; training cannot go on from it"
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


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
