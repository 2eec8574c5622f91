"""The AMOR space: a recurrent backbone with attention after it, in it, beside it or instead of it."""

from __future__ import annotations

from collections.abc import Iterator

from crossbreed.core.contracts.space import Draw, Setting
from crossbreed.core.genome import Architecture, Block, OutputScale, Router, Stage, Sublayer
from crossbreed.search_spaces.base import BodySpace, Point, policies
from crossbreed.search_spaces.drawing import NONE, Pen
from crossbreed.search_spaces.menu import Menu

MOST_BLOCKS = 3
"""Attention blocks after the backbone (K) at most; AMOR has 3, and 1 in a variant."""
AFTER, SERIAL, FUSED, ATTENTION, BACKBONE = "after", "serial", "fused", "attention", "backbone"


class Amor(BodySpace):
    """Where attention stands: ``after`` the backbone in gated blocks (AMOR), ``serial`` in place of some layers, ``fused``
    beside some, ``attention`` in all, or nowhere (``backbone``).

    Backbone layers are alike; they may be multi-mixers under a mode router, and may repeat one set of weights with a halt.
    """

    name = "amor"

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        """Draws: ``form``, ``depth``, ``backbone``, ``attention``, ``attention_layers`` or ``blocks``, ``residual`` and
        ``gate``, ``channel``, ``readers``, ``mode``, ``halt``, and the plugins' own ranges."""
        allowed, pen = self.menu(setting), Pen(draw, setting)
        depth, shares = pen.depth(allowed.depth, 2, max(2, 2 * self.config.layers))
        layers = 1 if shares else self.config.layers
        form = draw.choose("form", _forms(allowed, layers))
        target = self.target(setting.d_model, layers, depth.repeats)
        backbone = None if form == ATTENTION else draw.choose("backbone", _backbones(allowed))
        growing = None if form == BACKBONE else draw.choose("attention", allowed.growing)
        channel = draw.choose("channel", allowed.channel) if allowed.channel else None
        multi = backbone in allowed.multi
        readers = pen.readers(allowed.pairs) if multi else []
        mode = pen.router("mode", allowed.modes) if multi else None
        halt = pen.router("halt", (NONE, *allowed.halts)) if allowed.halts and depth.repeats > 1 else None
        attention = None if growing is None else pen.sequence(growing, target.sequence)
        # A backbone may be of the attention's kind; its settings are drawn once.
        base = attention if backbone in (None, growing) else pen.sequence(backbone, target.sequence, readers)
        assert base is not None
        tail = (
            () if channel is None else (pen.channel(channel, target.channel_active, target.channel_stored),)
        )
        places = self._places(draw, form, layers) if form in (SERIAL, FUSED) else frozenset()
        blocks: list[Block] = []
        for i in range(layers):
            if i not in places or attention is None:
                blocks.append(Block(sublayers=(base, *tail)))
            elif form == SERIAL:
                blocks.append(Block(sublayers=(attention, *tail)))
            else:
                blocks.append(Block(sublayers=(attention, base), arrangement="parallel_mean"))
                blocks += [Block(sublayers=tail)] if tail else []
        stages = [Stage(blocks=tuple(blocks), depth=depth, halt=halt)]
        if form == AFTER and attention is not None:
            gate = pen.router("gate", (NONE, *allowed.gates))
            stages.append(self._after(draw, attention, gate))
        return Architecture(
            vocab=setting.vocab, d_model=setting.d_model, stages=tuple(stages), mode_router=mode
        )

    def points(self, allowed: Menu, setting: Setting) -> Iterator[Point]:
        """AMOR with every gate and its variants, its rivals, and every router at mode and at halt."""
        own, shared = policies(setting, allowed)
        forms, singles = (
            _forms(allowed, self.config.layers if own else 1),
            allowed.constant or allowed.growing,
        )
        layered: Point = {"depth": own[0]} if own else {}
        if AFTER in forms:
            for i, gate in enumerate((*allowed.gates, NONE)):
                backbone = singles[i % len(singles)]
                yield layered | {"form": AFTER, "backbone": backbone, "gate": gate, "blocks": MOST_BLOCKS}
            gate = allowed.gates[0] if allowed.gates else NONE
            variant = layered | {"form": AFTER, "backbone": singles[0], "gate": gate}
            yield variant | {"blocks": 1}
            yield variant | {"blocks": MOST_BLOCKS, "residual": "h"}
        yield from (layered | {"form": BACKBONE, "backbone": m} for m in singles if BACKBONE in forms)
        yield from (layered | {"form": f, "backbone": singles[0]} for f in (SERIAL, FUSED) if f in forms)
        yield from (layered | {"form": ATTENTION, "attention": m} for m in allowed.growing)
        for i, mode in enumerate(allowed.modes if allowed.multi else ()):
            pair = "|".join(allowed.pairs[i % len(allowed.pairs)])
            multi = allowed.multi[i % len(allowed.multi)]
            form = AFTER if AFTER in forms else BACKBONE
            yield layered | {"form": form, "backbone": multi, "mode": mode, "readers": pair, "blocks": 1}
        for policy in shared:
            stored = allowed.sparse[:1] or allowed.channel[:1]
            for halt in (NONE, *allowed.halts):
                point: Point = {"depth": policy, "form": BACKBONE, "backbone": singles[0], "halt": halt}
                yield point | ({"channel": stored[0]} if stored else {})

    def _places(self, draw: Draw, form: str, layers: int) -> frozenset[int]:
        """Layers (from 0) that hold attention, evenly spread, the last one among them; in series some are left."""
        count = draw.integer("attention_layers", 1, layers - 1 if form == SERIAL else layers)
        return frozenset((i + 1) * layers // count - 1 for i in range(count))

    def _after(self, draw: Draw, attention: Sublayer, gate: Router | None) -> Stage:
        """Blocks after the backbone: in ``classic`` its final norm enters the stream, and the first has none of its own."""
        count = draw.integer("blocks", 1, MOST_BLOCKS)
        classic = draw.choose("residual", ("classic", "h")) == "classic"
        blocks = tuple(
            Block(
                sublayers=(attention,),
                norm="none" if classic and i == 0 else "pre",
                output_scale=OutputScale(),
                output_init="zero",
                gate=gate,
            )
            for i in range(count)
        )
        return Stage(blocks=blocks, entry_norm=classic)


def _backbones(allowed: Menu) -> tuple[str, ...]:
    return (allowed.constant + allowed.multi) or allowed.growing


def _forms(allowed: Menu, layers: int) -> tuple[str, ...]:
    """Forms that what is allowed can make; attention beside or in place of itself is none, nor in place of all layers."""
    if not allowed.growing:
        return (BACKBONE,)
    if not allowed.constant and not allowed.multi:
        return (AFTER, ATTENTION)
    return (AFTER, *((SERIAL,) if layers > 1 else ()), FUSED, ATTENTION, BACKBONE)
