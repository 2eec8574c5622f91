"""GENOME arguments: a file, a preset, a candidate or a hash prefix of the database; and what a genome costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
CANDIDATE = re.compile(r"([^/]+)/(\d{1,9})")
FILE_NAME = re.compile(r".*\.(ya?ml|json)", re.IGNORECASE)
KINDS = "a file, a preset, a candidate as STUDY/NUMBER, or a hash prefix in the database"
"""What a GENOME may be, for the help of commands."""


@dataclass(frozen=True)
class Genome:
    """What a GENOME argument names, found but not yet met with plugins: a preset, or ``data`` of a file or of the database.

    where: what error messages call it. stored: whether it is the database's, where it may outlive its plugins.
    """

    where: str
    data: Mapping[str, Any] | None = None
    preset: Preset | None = None
    stored: bool = False

    @staticmethod
    def find(text: str, db: str) -> Genome:
        """What ``text`` names; a file goes first, then a preset.

        Raises ConfigError when it is neither a readable genome file, nor a preset, nor a candidate of ``db`` as STUDY/NUMBER,
        nor a hash prefix (4 to 64 hex digits) found there.
        """
        from crossbreed.core.search.study_file import read_mapping

        if Path(text).is_file():
            data = read_mapping(Path(text), "genome file")
            _check_kind(text, data)
            return Genome(text, data)
        if text in presets():
            return Genome(text, preset=presets()[text])
        if FILE_NAME.fullmatch(text):
            raise ConfigError(f"genome file {text!r} does not exist.")
        if PREFIX.fullmatch(text) or CANDIDATE.fullmatch(text):
            return _stored(text, db)
        hint = nearest(text.lower(), presets()) or "."
        raise ConfigError(
            f"genome {text!r} is neither a file, a preset, a candidate as STUDY/NUMBER nor a hash prefix of 4 to 64 hex "
            f"digits{hint} `crossbreed presets` lists presets."
        )

    def as_stored(self, vocab: int | None = None) -> Architecture:
        """The architecture as it is written, whether or not its plugins are registered.

        ``vocab``, a task's, stands in for one that a file leaves out, and replaces a preset's.
        """
        if self.preset is not None:
            return self.preset.build(vocab)
        return parse(
            Architecture, {**({} if vocab is None else {"vocab": vocab}), **(self.data or {})}, self.where
        )

    def build(self, registry: Registry, vocab: int | None = None) -> Architecture:
        """The canonical architecture. Raises UnknownName or ConfigError where it cannot be built with what is registered."""
        architecture = registry.canonical(self.as_stored(vocab))
        legality.check(architecture, registry)
        return architecture


def read_genome(text: str, db: str, registry: Registry, vocab: int | None = None) -> Architecture:
    """The canonical architecture that a GENOME argument names: ``Genome.find`` and ``Genome.build``."""
    return Genome.find(text, db).build(registry, vocab)


def _check_kind(text: str, data: Mapping[str, Any]) -> None:
    if "stages" in data:
        return
    if "budget" in data and "task" in data:
        raise ConfigError(
            f"{text!r} is a study file, not a genome; `crossbreed search {text} --plan` says what it would search."
        )
    if data.keys() & {"match", "cap"}:
        raise ConfigError(
            f"{text!r} is a budget file, not a genome; `crossbreed match` takes it as --budget."
        )


def _stored(text: str, db: str) -> Genome:
    from crossbreed.storage.repository import Repository

    with Repository.open(db, read_only=True) as repository:
        candidate = CANDIDATE.fullmatch(text)
        if candidate is None:
            found = repository.architecture(text)
            return Genome(f"architecture {found.hash[:12]}", found.genome, stored=True)
        study = repository.open_study(candidate[1])
        trial = repository.trial(study.id, int(candidate[2]))
        return Genome(f"candidate {text}", trial.genome, stored=True)


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
