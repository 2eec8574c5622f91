"""The Oryx space: layers of one sequence mixer, of which several readers may share keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from crossbreed.core.contracts.space import Draw, Setting
from crossbreed.core.genome import Architecture, Stage
from crossbreed.search_spaces.base import BodySpace, Point, gated_layer, policies
from crossbreed.search_spaces.drawing import NONE, Pen
from crossbreed.search_spaces.menu import Menu


class Oryx(BodySpace):
    """Equal layers of a sequence mixer and a channel mixer, the mixer behind a gate or not.

    A multi-mixer has a pair of readers and a mode router. Layers may repeat one set of weights, with a halt or without.
    """

    name = "oryx"

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        """Draws: ``depth``, ``sequence``, ``channel``, ``readers``, ``mode``, ``gate``, ``halt``, and the plugins' ranges."""
        allowed, pen = self.menu(setting), Pen(draw, setting)
        depth, shares = pen.depth(allowed.depth, 2, max(2, 2 * self.config.layers))
        layers = 1 if shares else self.config.layers
        target = self.target(setting.d_model, layers, depth.repeats)
        mixer = draw.choose("sequence", (*allowed.multi, *allowed.constant, *allowed.growing))
        channel = draw.choose("channel", allowed.channel) if allowed.channel else None
        multi = mixer in allowed.multi
        readers = pen.readers(allowed.pairs) if multi else []
        mode = pen.router("mode", allowed.modes) if multi else None
        gate = pen.router("gate", (NONE, *allowed.gates)) if allowed.gates else None
        halt = pen.router("halt", (NONE, *allowed.halts)) if allowed.halts and depth.repeats > 1 else None
        head = pen.sequence(mixer, target.sequence, readers)
        tail = (
            () if channel is None else (pen.channel(channel, target.channel_active, target.channel_stored),)
        )
        blocks = gated_layer(head, tail, gate) * layers
        return Architecture(
            vocab=setting.vocab,
            d_model=setting.d_model,
            stages=(Stage(blocks=blocks, depth=depth, halt=halt),),
            mode_router=mode,
        )

    def points(self, allowed: Menu, setting: Setting) -> Iterator[Point]:
        """Every pair of readers and every mode router, the single mixers, and every router at gate and at halt."""
        own, shared = policies(setting, allowed)
        layered: Point = {"depth": own[0]} if own else {}
        body: Point = {"sequence": allowed.sequence[0]}
        if allowed.multi:
            count = max(len(allowed.modes), len(allowed.pairs))
            for i in range(count):
                pair, mode = allowed.pairs[i % len(allowed.pairs)], allowed.modes[i % len(allowed.modes)]
                body = {"sequence": allowed.multi[0], "readers": "|".join(pair), "mode": mode}
                yield layered | body
        yield from (layered | {"sequence": m} for m in (*allowed.growing, *allowed.constant))
        yield from (layered | body | {"gate": gate} for gate in allowed.gates)
        for policy in shared:
            stored = allowed.sparse[:1] or allowed.channel[:1]
            for halt in (NONE, *allowed.halts):
                point = body | {"depth": policy, "halt": halt}
                yield point | ({"channel": stored[0]} if stored else {})
