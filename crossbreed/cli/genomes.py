"""GENOME arguments: a file, a preset, or a hash prefix of an architecture in the database; and what a genome costs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rich.text import Text
from rich.tree import Tree

from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.errors import ConfigError, nearest
from crossbreed.core.genome import Architecture, Router, parse
from crossbreed.core.host import Registry
from crossbreed.core.model import legality
from crossbreed.presets import Preset, presets

PREFIX = re.compile(r"[0-9a-f]{4,64}")


def read_genome(text: str, db: str, registry: Registry, vocab: int | None = None) -> Architecture:
    """The canonical architecture that a GENOME argument names.

    ``vocab``, a task's, stands in for one that a file leaves out, and replaces a preset's. Raises ConfigError when it is
    neither a readable file, nor a preset, nor a hash prefix (4 to 64 hex digits) found in ``db``.
    """
    from crossbreed.core.search.study_file import read_mapping

    if Path(text).is_file():
        data = read_mapping(Path(text), "genome file")
        defaults = {} if vocab is None else {"vocab": vocab}
        architecture = parse(Architecture, {**defaults, **data}, text)
    elif (named := named_preset(text)) is not None:
        architecture = named.build(vocab)
    elif PREFIX.fullmatch(text):
        architecture = stored_genome(text, db)
    else:
        raise ConfigError(
            f"genome {text!r} is neither a file, a preset nor a hash prefix of 4 to 64 hex digits"
            f"{nearest(text, presets()) or '.'}"
        )
    architecture = registry.canonical(architecture)
    legality.check(architecture, registry)
    return architecture


def named_preset(text: str) -> Preset | None:
    """The preset that a GENOME argument names, or None; a file of that name goes first."""
    return None if Path(text).is_file() else presets().get(text)


def stored_genome(prefix: str, db: str) -> Architecture:
    """An architecture of the database as it was stored, whether or not its plugins are registered."""
    from crossbreed.storage.repository import Repository

    with Repository.open(db, read_only=True) as repository:
        found = repository.architecture(prefix)
    return parse(Architecture, found.genome, f"architecture {found.hash[:12]}")


def cost_model(registry: Registry) -> CostModel:
    """The cost model whose numbers budgets use."""
    from crossbreed.core.search.study_setting import COST_MODEL

    config = registry.config("cost", COST_MODEL, {})
    model: CostModel = registry.factory("cost", COST_MODEL)(config, registry)
    return model


def tree(architecture: Architecture) -> Tree:
    """The genome as a tree: stages, blocks, sublayers, and the routers where they stand."""
    tied = "tied" if architecture.tie_embeddings else "untied"
    root = Tree(Text(f"vocab {architecture.vocab}, d_model {architecture.d_model}, {tied} embeddings"))
    if architecture.mode_router is not None:
        root.add(Text(f"mode router: {_router(architecture.mode_router)}"))
    for s, stage in enumerate(architecture.stages):
        depth = f"{stage.depth.name} x {stage.depth.repeats}{_params(stage.depth.params)}"
        branch = root.add(Text(f"stage {s}: {depth}{', entry norm' if stage.entry_norm else ''}"))
        if stage.halt is not None:
            branch.add(Text(f"halt: {_router(stage.halt)}"))
        for b, block in enumerate(stage.blocks):
            leaf = branch.add(Text(f"block {b}: {block.arrangement}, norm {block.norm}"))
            if block.gate is not None:
                leaf.add(Text(f"gate: {_router(block.gate)}"))
            for sublayer in block.sublayers:
                leaf.add(Text(f"{sublayer.mixer}{_params(sublayer.params)}"))
    if architecture.final_norm:
        root.add(Text("final norm"))
    return root


def _router(router: Router) -> str:
    return f"{router.name}{_params(router.params)}"


def _params(params: dict[str, Any]) -> str:
    shown = ", ".join(f"{key}={_short(value)}" for key, value in params.items() if value is not None)
    return f" ({shown})" if shown else ""


def _short(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{key}={_short(item)}" for key, item in value.items() if item not in (None, {}))
        return "{" + inner + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_short(item) for item in value) + "]"
    return str(value)
