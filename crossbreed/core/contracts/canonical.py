"""The one form of an architecture: the same model, however written, is equal after this, and so has one hash.

What is written in several ways and is one model, in function, in costs and in the order its weights are drawn:

- settings: defaults filled in by each plugin's config, numbers normalised, a mode by its reader's name or its number;
- what says nothing: the arrangement of one sublayer, the epsilon of a norm that is not there, the depth policy of a stage
  that runs once;
- the borders of blocks: plain sublayers one after another (no gate, no output scale, sequential, equal norms) are grouped
  so that axes rise inside a block, depth, sequence, channel: a mixer and its feed-forward layer are one block;
- layers listed or repeated: a ``layered`` stage is its shortest pattern of blocks, repeated.

Not made one, because something else than the writing differs:

- repeats of a mixer that looks at its depth (``MixerDescriptor.sees_depth``), which are not so many first depths;
- repeats of gated blocks and of a stage with a halt: a site is a name under which decisions are forced, counted and stored
  (``1.0.gate`` for all depths of one block, ``1.0.gate`` and ``1.1.gate`` for two);
- stages: where one ends is where its entry norm, its halting and its share of the ledger do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crossbreed.core.contracts.parts import Kind, Parts
from crossbreed.core.errors import ConfigError, nearest
from crossbreed.core.genome import (
    NORM_EPS,
    Architecture,
    Block,
    DepthPolicy,
    Params,
    Router,
    Stage,
    Sublayer,
    check_readers,
    reader_names,
)

AXES = ("depth", "sequence", "channel")
"""In the order in which they stand in a block of plain sublayers."""
ONCE = DepthPolicy()


def canonical(architecture: Architecture, parts: Parts) -> Architecture:
    """The canonical form. Raises ConfigError for unknown names or settings."""

    def resolve(kind: Kind, name: str, params: Params) -> Params:
        return dict(parts.config(kind, name, params).model_dump(mode="json"))

    def router(gene: Router | None) -> Router | None:
        return (
            None if gene is None else Router(name=gene.name, params=resolve("router", gene.name, gene.params))
        )

    def block(gene: Block) -> Block:
        subs = tuple(
            Sublayer(mixer=s.mixer, params=resolve("mixer", s.mixer, s.params)) for s in gene.sublayers
        )
        # One sublayer runs the same way in every arrangement.
        arrangement = gene.arrangement if len(subs) > 1 else "sequential"
        normed = gene.norm != "none" or arrangement == "parallel_mean"
        return gene.model_copy(
            update={
                "sublayers": subs,
                "arrangement": arrangement,
                "gate": router(gene.gate),
                "norm_eps": gene.norm_eps if normed else NORM_EPS,
            }
        )

    def stage(gene: Stage) -> Stage:
        depth = gene.depth.model_copy(update={"params": resolve("depth", gene.depth.name, gene.depth.params)})
        filled = gene.model_copy(
            update={
                "blocks": tuple(map(block, gene.blocks)),
                "depth": _once(depth, len(gene.blocks), parts),
                "halt": router(gene.halt),
                "norm_eps": gene.norm_eps if gene.entry_norm else NORM_EPS,
            }
        )
        return _laid_out(filled, parts)

    stages = tuple(map(stage, architecture.stages))
    # Once more, since defaults may list readers too.
    check_readers(stages)
    mode = architecture.mode_router
    return architecture.model_copy(
        update={
            "stages": stages,
            "mode_router": None if mode is None else router(_numbered(mode, reader_names(stages), parts)),
            "norm_eps": architecture.norm_eps if architecture.final_norm else NORM_EPS,
        }
    )


def pattern(items: Sequence[Any]) -> int:
    """Length of the shortest beginning of ``items`` that gives all of them when repeated."""
    count = len(items)
    return next(n for n in range(1, count + 1) if count % n == 0 and items[n:] == items[: count - n])


def lists_layers(stage: Stage, parts: Parts) -> bool:
    """Whether a stage is a list of layers: repeating its blocks is the same as listing them again."""
    plain = stage.depth.name == ONCE.name and stage.halt is None
    return plain and all(_anywhere(block, parts) for block in stage.blocks)


def _once(depth: DepthPolicy, blocks: int, parts: Parts) -> DepthPolicy:
    """Every policy that runs a stage once, in order, is the same there."""
    if depth.repeats > 1 or depth.name == ONCE.name or ONCE.name not in parts.names("depth"):
        return depth
    policy = parts.factory("depth", depth.name)(parts.config("depth", depth.name, depth.params))
    runs = [(step.depth, step.block, step.weights) for step in policy.plan(1, blocks)]
    return ONCE if runs == [(0, block, 0) for block in range(blocks)] else depth


def _laid_out(stage: Stage, parts: Parts) -> Stage:
    """The stage with its blocks' borders where they belong, a list of layers as its shortest pattern, repeated."""
    pieces = [piece for block in stage.blocks for piece in _pieces(block)]
    depth = stage.depth
    if lists_layers(stage, parts):
        # The pattern is found piece by piece, so that it does not depend on where blocks ended.
        length = pattern(pieces)
        depth = depth.model_copy(update={"repeats": depth.repeats * (len(pieces) // length)})
        pieces = pieces[:length]
    return stage.model_copy(update={"blocks": _grouped(pieces, parts), "depth": depth})


def _pieces(block: Block) -> list[Block]:
    """A plain block cut into its sublayers, any other as it is."""
    if not _plain(block) or len(block.sublayers) == 1:
        return [block]
    return [block.model_copy(update={"sublayers": (sublayer,)}) for sublayer in block.sublayers]


def _grouped(pieces: list[Block], parts: Parts) -> tuple[Block, ...]:
    """Plain sublayers one after another, in blocks inside which axes rise."""
    found: list[Block] = []
    reached = 0
    for piece in pieces:
        rank = AXES.index(parts.descriptor("mixer", piece.sublayers[0].mixer).capabilities.axis)
        if found and reached < rank and _alike(found[-1], piece):
            found[-1] = found[-1].model_copy(update={"sublayers": found[-1].sublayers + piece.sublayers})
        else:
            found.append(piece)
        reached = rank
    return tuple(found)


def _plain(block: Block) -> bool:
    return block.gate is None and block.output_scale is None and block.arrangement == "sequential"


def _alike(a: Block, b: Block) -> bool:
    """Whether two blocks' sublayers could stand in one."""
    same = (a.norm, a.norm_eps, a.output_init) == (b.norm, b.norm_eps, b.output_init)
    return same and _plain(a) and _plain(b)


def _anywhere(block: Block, parts: Parts) -> bool:
    """Whether a block is the same at every depth: nothing in it looks at its depth, and no site of its own names one."""
    return block.gate is None and not any(_sees_depth(sublayer, parts) for sublayer in block.sublayers)


def _sees_depth(sublayer: Sublayer, parts: Parts) -> bool:
    looks = parts.descriptor("mixer", sublayer.mixer).sees_depth
    return looks is None or looks(parts.config("mixer", sublayer.mixer, sublayer.params))


def _numbered(router: Router, readers: list[str], parts: Parts) -> Router:
    """Readers' names in the settings that hold modes, as numbers. Raises ConfigError for a name of no reader."""
    changed = {
        name: _number(router.params[name], readers, f"{name} of mode_router {router.name!r}")
        for name in parts.descriptor("router", router.name).choices
        if name in router.params
    }
    return router.model_copy(update={"params": {**router.params, **changed}}) if changed else router


def _number(value: Any, readers: list[str], where: str) -> Any:
    """A mode by its reader's name, alone or in (position, mode) pairs, as a number; anything else as it is."""
    if isinstance(value, str) and value != SAME:
        if value not in readers:
            listed = ", ".join(readers) or "none"
            raise ConfigError(
                f"{where} names {value!r}; it must be {SAME!r}, a mode's number or the name of a reader ({listed})"
                f"{nearest(value, readers)}"
            )
        return readers.index(value)
    if isinstance(value, list | tuple):
        return [
            [pair[0], _number(pair[1], readers, where)]
            if isinstance(pair, list | tuple) and len(pair) == 2
            else pair
            for pair in value
        ]
    return value


SAME = "same"
"""The word that stands for no mode in such a setting: the router decides."""
