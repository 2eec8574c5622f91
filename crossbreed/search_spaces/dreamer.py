"""The Dreamer space: one block of mixers over depth, sequence and channels, repeated with shared weights or its own."""

from __future__ import annotations

from collections.abc import Iterator

from crossbreed.core.contracts.space import Draw, Setting
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Router, Stage, Sublayer
from crossbreed.search_spaces.base import BodySpace, Point, policies
from crossbreed.search_spaces.drawing import NONE, Pen
from crossbreed.search_spaces.menu import Menu

SEQUENTIAL, PARALLEL = "sequential", "parallel"
PROJECTIONS = "projection_experts"
"""The setting of mixers whose projections may be sparse experts."""


class Dreamer(BodySpace):
    """A block of depth attention or none, a sequence mixer and a channel mixer, at ``config.layers`` depths.

    Weights are shared over depth or not; with shared ones, projections may be as many sparse experts as there are depths,
    and a layer of its own may stand before and after the repeated block (prelude, core, coda).
    """

    name = "dreamer"

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        """Draws: ``depth``, ``over_depth``, ``sequence``, ``channel``, ``arrangement``, ``projections``, ``ends``,
        ``readers``, ``mode``, ``gate``, ``halt``, and the plugins' own ranges."""
        allowed, pen = self.menu(setting), Pen(draw, setting)
        depth, shares = pen.depth(allowed.depth, 2, max(2, 2 * self.config.layers))
        if not shares:
            depth = DepthPolicy(name=depth.name, repeats=self.config.layers, params=depth.params)
        over_depth = draw.choose("over_depth", (NONE, *allowed.over_depth)) if allowed.over_depth else NONE
        mixer = draw.choose("sequence", (*allowed.growing, *allowed.constant, *allowed.multi))
        channel = draw.choose("channel", (*allowed.sparse, *allowed.dense)) if allowed.channel else None
        arrangement = draw.choose("arrangement", (SEQUENTIAL, PARALLEL))
        ends = draw.integer("ends", 0, 1) if shares and depth.repeats > 3 else 0
        depth = depth.model_copy(update={"repeats": depth.repeats - 2 * ends})
        multi = mixer in allowed.multi
        readers = pen.readers(allowed.pairs) if multi else []
        mode = pen.router("mode", allowed.modes) if multi else None
        gate = pen.router("gate", (NONE, *allowed.gates)) if allowed.gates else None
        halt = pen.router("halt", (NONE, *allowed.halts)) if allowed.halts and depth.repeats > 1 else None
        sets = 1 if shares else depth.repeats
        runs = depth.repeats + 2 * ends
        target = self.target(setting.d_model, sets + 2 * ends, runs // (sets + 2 * ends) or 1)
        sublayers = [] if over_depth == NONE else [pen.sequence(over_depth, target.sequence / 2)]
        sublayers.append(pen.sequence(mixer, target.sequence, readers))
        if shares and depth.repeats > 1 and any(_may_have_experts(sub.mixer, setting) for sub in sublayers):
            experts = draw.choose("projections", ("plain", "experts")) == "experts"
            sublayers = [_with_experts(sub, depth.repeats, setting) if experts else sub for sub in sublayers]
        if channel is not None:
            sublayers.append(pen.channel(channel, target.channel_active, target.channel_stored))
        stage = Stage(blocks=_blocks(sublayers, mixer, arrangement, gate), depth=depth, halt=halt)
        end = (Stage(blocks=_blocks(sublayers, mixer, arrangement, gate)),) * ends
        return Architecture(
            vocab=setting.vocab,
            d_model=setting.d_model,
            stages=(*end, stage, *end),
            mode_router=mode,
        )

    def points(self, allowed: Menu, setting: Setting) -> Iterator[Point]:
        """Dreamer, its ablations, layered rivals, prelude-core-coda, and every router at halt, mode and gate."""
        own, shared = policies(setting, allowed)
        first: Point = {"sequence": allowed.sequence[-1]}
        if allowed.growing:
            first = {"sequence": allowed.growing[0]}
        if allowed.sparse:
            first["channel"] = allowed.sparse[0]
        over: Point = {"over_depth": allowed.over_depth[0]} if allowed.over_depth else {}
        light: Point = {"projections": "experts"} if _may_have_experts(first["sequence"], setting) else {}
        for policy in shared:
            body = first | {"depth": policy}
            yield body | over | light
            yield body | over | light | {"arrangement": PARALLEL}
            if over and light:
                yield body | light
            if over or light:
                yield body
            yield body | {"ends": 1, f"depth.{policy}.repeats": max(4, self.config.layers)}
            yield from (body | over | {"halt": halt} for halt in allowed.halts)
            yield from (body | over | {"gate": gate} for gate in allowed.gates)
            for i, mode in enumerate(allowed.modes if allowed.multi else ()):
                pair = "|".join(allowed.pairs[i % len(allowed.pairs)])
                yield body | over | {"sequence": allowed.multi[0], "readers": pair, "mode": mode}
        for policy in own:
            yield first | {"depth": policy}
            if over:
                yield first | over | {"depth": policy}
            yield from (first | {"depth": policy, "channel": c} for c in allowed.dense[:1])


def _may_have_experts(mixer: str, setting: Setting) -> bool:
    return PROJECTIONS in setting.parts.descriptor("mixer", mixer).config.model_fields


def _with_experts(sublayer: Sublayer, depths: int, setting: Setting) -> Sublayer:
    """The mixer with as many sets of projections as depths, one of them shared by all tokens, where it can have them."""
    if not _may_have_experts(sublayer.mixer, setting):
        return sublayer
    return Sublayer(mixer=sublayer.mixer, params={**sublayer.params, PROJECTIONS: {"experts": depths - 1}})


def _blocks(
    sublayers: list[Sublayer], mixer: str, arrangement: str, gate: Router | None
) -> tuple[Block, ...]:
    """One block; in sequence a gate skips the sequence mixer alone, side by side it skips all."""
    if gate is None or arrangement == PARALLEL:
        block = {"sublayers": tuple(sublayers), "arrangement": arrangement, "gate": gate}
        return (Block.model_validate(block | {"output_init": "depth_scaled"}),)
    return tuple(
        Block(sublayers=(sub,), output_init="depth_scaled", gate=gate if sub.mixer == mixer else None)
        for sub in sublayers
    )
