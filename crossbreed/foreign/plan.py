"""What a format makes of a checkpoint: a genome and a table; and the pieces that formats share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Sublayer
from crossbreed.foreign.files import Source
from crossbreed.foreign.table import Entry, Rule, whole


@dataclass(frozen=True)
class Plan:
    """``copies``: see ``assemble``."""

    architecture: Architecture
    table: tuple[Entry, ...]
    copies: Mapping[str, str] = field(default_factory=dict)


def ends(source: Source, embedding: str, head: str) -> tuple[bool, tuple[Rule, ...], dict[str, str]]:
    """(tied, rules, copies) of the embedding and the head. Tied: there is no head of its own, or it is the embedding."""
    source.shape(embedding)
    rules = (whole("embedding.weight", embedding),)
    own = source.tensors.get(head)
    if own is None or torch.equal(own, source.tensors[embedding]):
        return True, rules, {head: embedding}
    return False, (*rules, whole("head.weight", head)), {}


def swiglu(source: Source, there: str, here: str) -> tuple[Sublayer, Iterator[Rule]]:
    """A gated MLP with ``gate_proj``, ``up_proj`` and ``down_proj``."""
    hidden = source.shape(f"{there}gate_proj.weight")[0]
    rules = (
        whole(f"{here}gate_up.weight", f"{there}gate_proj.weight", f"{there}up_proj.weight"),
        whole(f"{here}down.weight", f"{there}down_proj.weight"),
    )
    return Sublayer(mixer="swiglu", params={"hidden": hidden}), iter(rules)


def divided(what: str, whole: int, by: int) -> int:
    """whole / by. Raises ConfigError when it is no whole number."""
    if by < 1 or whole % by:
        raise ConfigError(
            f"{what}: {whole} is not divisible by {by}; the checkpoint's sizes and settings disagree."
        )
    return whole // by
