"""The table of a format: which rows of which source tensors make each tensor here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from crossbreed.core.errors import ConfigError
from crossbreed.foreign.files import Source


@dataclass(frozen=True)
class Part:
    """Rows ``first:last`` of a source tensor; ``last`` None is its end."""

    source: str
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class Rule:
    """``target`` is its parts one under another, after ``reshape``."""

    target: str
    parts: tuple[Part, ...]
    reshape: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Constant:
    """``target`` holds what the source knows nothing about."""

    target: str
    value: float


Entry = Rule | Constant


def whole(target: str, *sources: str, reshape: Callable[[Tensor], Tensor] | None = None) -> Rule:
    """A rule whose parts are whole tensors."""
    return Rule(target, tuple(Part(source) for source in sources), reshape)


def sections(source: str, **rows: int) -> dict[str, Part]:
    """Parts of a source tensor by name, one after another with so many rows each."""
    parts, first = {}, 0
    for name, count in rows.items():
        parts[name] = Part(source, first, first + count)
        first += count
    return parts


def taps(weight: Tensor) -> Tensor:
    """The weight of a depthwise torch convolution, (C, 1, W), as (C, W)."""
    return weight.squeeze(1)


def assemble(
    table: Iterable[Entry], source: Source, targets: Mapping[str, Tensor], copies: Mapping[str, str]
) -> dict[str, Tensor]:
    """Every target's tensor, in its own dtype, with its values from the source.

    ``copies``: keys that a source may repeat under another name (a tied head), which must then be equal. Raises ConfigError
    naming what is missing, left over, of another shape, or not used whole.
    """
    table = list(table)
    rules = [entry for entry in table if isinstance(entry, Rule)]
    where = f"checkpoint {str(source.path)!r}"
    needed = {part.source for rule in rules for part in rule.parts}
    _none(sorted(needed - source.tensors.keys()), f"{where} lacks")
    _none(sorted(source.tensors.keys() - needed - copies.keys()), f"{where} has no place here for")
    for copy, original in copies.items():
        if copy in source.tensors and not torch.equal(source.tensors[copy], source.tensors[original]):
            raise ConfigError(f"{where}: tensor {copy!r} differs from {original!r}, with which it is tied.")
    _used_whole(rules, source, where)
    filled = {entry.target for entry in table}
    _none(sorted(targets.keys() - filled), "the format's table fills not")
    made: dict[str, Tensor] = {}
    for entry in table:
        target = targets[entry.target]
        if isinstance(entry, Constant):
            made[entry.target] = torch.full(target.shape, entry.value, dtype=target.dtype)
            continue
        value = torch.cat(
            [_rows(source.tensors[part.source])[part.first : part.last] for part in entry.parts]
        )
        value = value if entry.reshape is None else entry.reshape(value)
        value = value.reshape(target.shape) if value.numel() == target.numel() == 1 else value
        if value.shape != target.shape:
            names = ", ".join(dict.fromkeys(part.source for part in entry.parts))
            raise ConfigError(
                f"{where}: {names} give shape {tuple(value.shape)}, but {entry.target} has {tuple(target.shape)}."
            )
        made[entry.target] = value.to(target.dtype).contiguous()
    return made


def _rows(tensor: Tensor) -> Tensor:
    """A number is a tensor of one row."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def _none(names: list[str], what: str) -> None:
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise ConfigError(f"{what} {', '.join(map(repr, names[:3]))}{more}.")


def _used_whole(rules: list[Rule], source: Source, where: str) -> None:
    """Every row of every source tensor goes to exactly one place."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for rule in rules:
        for part in rule.parts:
            rows = len(_rows(source.tensors[part.source]))
            spans.setdefault(part.source, []).append((part.first, rows if part.last is None else part.last))
    for name, found in spans.items():
        rows, at = len(_rows(source.tensors[name])), 0
        for first, last in sorted(found):
            if first != at:
                break
            at = last
        if at != rows:
            raise ConfigError(f"{where}: tensor {name!r} has {rows} rows, but this format accounts for {at}.")
