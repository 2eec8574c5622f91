"""Moves: what setting one free dimension changes in an architecture.

An architecture is drafted as distinct blocks and, for each stage, the order in which they stand, so that what equal
blocks share is changed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from crossbreed.core.genome import Architecture, Block, Params


@dataclass
class Draft:
    """An architecture taken apart. ``stages``: indices into ``blocks``; ``repeats``: of each stage's depth policy."""

    architecture: Architecture
    blocks: list[Block]
    stages: list[tuple[int, ...]]
    repeats: list[int]
    d_model: int

    @staticmethod
    def of(architecture: Architecture) -> Draft:
        blocks: list[Block] = []
        stages = []
        for stage in architecture.stages:
            indices = []
            for block in stage.blocks:
                if block not in blocks:
                    blocks.append(block)
                indices.append(blocks.index(block))
            stages.append(tuple(indices))
        repeats = [stage.depth.repeats for stage in architecture.stages]
        return Draft(architecture, blocks, stages, repeats, architecture.d_model)

    def copy(self) -> Draft:
        return Draft(self.architecture, [*self.blocks], [*self.stages], [*self.repeats], self.d_model)

    def assembled(self) -> Architecture:
        stages = []
        for stage, indices, repeats in zip(self.architecture.stages, self.stages, self.repeats, strict=True):
            changes: dict[str, Any] = {"blocks": tuple(self.blocks[b] for b in indices)}
            if repeats != stage.depth.repeats:
                changes["depth"] = stage.depth.model_copy(update={"repeats": repeats})
            stages.append(stage.model_copy(update=changes))
        return self.architecture.model_copy(update={"stages": tuple(stages), "d_model": self.d_model})


class Move(Protocol):
    """Sets one dimension of a draft."""

    def apply(self, draft: Draft, value: int) -> None: ...


@dataclass(frozen=True)
class Setting:
    """A param of every sublayer at ``places``: (block, sublayer) of the draft. Dots lead into nested settings."""

    param: str
    places: tuple[tuple[int, int], ...]

    def apply(self, draft: Draft, value: int) -> None:
        for b, i in self.places:
            subs = list(draft.blocks[b].sublayers)
            params = _with(subs[i].params, self.param.split("."), value)
            subs[i] = subs[i].model_copy(update={"params": params})
            draft.blocks[b] = draft.blocks[b].model_copy(update={"sublayers": tuple(subs)})


@dataclass(frozen=True)
class Width:
    """The width of the residual stream."""

    def apply(self, draft: Draft, value: int) -> None:
        draft.d_model = value


@dataclass(frozen=True)
class Repeats:
    """How often a stage's depth policy runs it, in steps of ``blocks``."""

    stage: int
    blocks: int = 1

    def apply(self, draft: Draft, value: int) -> None:
        draft.repeats[self.stage] = value // self.blocks


@dataclass(frozen=True)
class Layers:
    """How many blocks a stage has: its pattern of blocks, again and again."""

    stage: int
    pattern: tuple[int, ...]

    def apply(self, draft: Draft, value: int) -> None:
        draft.stages[self.stage] = self.pattern * (value // len(self.pattern))


def setting(params: Params, path: str) -> Any:
    """The value at a dotted path, or None where the path ends early."""
    found: Any = params
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _with(params: Params, path: list[str], value: int) -> Params:
    key, *rest = path
    return {**params, key: _with(params[key], rest, value) if rest else value}
