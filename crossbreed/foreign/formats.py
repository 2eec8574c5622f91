"""The formats that can be imported, and importing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.foreign import amor, gated_deltanet, mamba2
from crossbreed.foreign.files import Source
from crossbreed.foreign.plan import Plan
from crossbreed.foreign.table import assemble


@dataclass(frozen=True)
class Format:
    """``mark``: a key that every checkpoint of this format has, and no other's."""

    name: str
    summary: str
    mark: str
    plan: Callable[[Source], Plan]


FORMATS: Mapping[str, Format] = {
    found.name: found
    for found in (
        Format("amor", "AMOR, with either backbone, as its authors' code saves it", amor.MARK, amor.plan),
        Format("mamba2", "Mamba-2 of state-spaces and of transformers", mamba2.MARK, mamba2.plan),
        Format("gated_deltanet", "Gated DeltaNet of fla", gated_deltanet.MARK, gated_deltanet.plan),
    )
}


@dataclass(frozen=True)
class Imported:
    """A model with the weights of another project's checkpoint, of which ``tensors`` were read."""

    format: str
    model: LanguageModel
    tensors: int

    @property
    def architecture(self) -> Architecture:
        return self.model.architecture


def recognise(source: Source, name: str = "auto") -> Format:
    """The format of that name, or the one whose mark the checkpoint carries. Raises ConfigError when it is none."""
    if name != "auto":
        if name not in FORMATS:
            raise UnknownName("format", name, FORMATS)
        return FORMATS[name]
    for found in FORMATS.values():
        if found.mark in source.tensors:
            return found
    marks = "; ".join(f"{found.name} has {found.mark!r}" for found in FORMATS.values())
    raise ConfigError(f"checkpoint {str(source.path)!r} is of no known format: {marks}.")


def import_model(source: Source, registry: Registry, format: str = "auto") -> Imported:
    """Build what the checkpoint's sizes say and give it the checkpoint's weights, in float32.

    Raises ConfigError naming the tensors that are missing, left over or of another shape.
    """
    found = recognise(source, format)
    plan = found.plan(source)
    with torch.device("meta"):
        model = LanguageModel(registry.canonical(plan.architecture), registry)
    weights = assemble(plan.table, source, model.state_dict(), plan.copies)
    model.load_state_dict(weights, assign=True, strict=True)
    return Imported(found.name, model.eval(), len(source.tensors))
