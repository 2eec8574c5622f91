"""Layer hybrids: which sequence mixer stands in which layer, what is gated, who reads, and how depth is spent."""

from __future__ import annotations

from collections.abc import Iterator

from crossbreed.core.contracts.space import Draw, Setting
from crossbreed.core.genome import Architecture, Stage
from crossbreed.search_spaces.base import BodySpace, Point, gated_layer, policies
from crossbreed.search_spaces.drawing import NONE, Pen
from crossbreed.search_spaces.menu import Menu


class LayerHybrids(BodySpace):
    """One stage of layers, each a sequence mixer and a channel mixer.

    A depth policy that shares weights repeats a single layer; any other has ``config.layers`` of them. Attention-like
    layers may be gated (the sequence mixer alone, as in AMOR); multi-mixers share readers and a mode router.
    """

    name = "layer_hybrids"

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        """See ``SearchSpace.propose``. Draws: ``depth``, ``channel``, ``layer0.sequence`` ..., ``gate``, ``mode``,
        ``readers``, and the plugins' own ranges under their site and name."""
        allowed, pen = self.menu(setting), Pen(draw, setting)
        depth, shares = pen.depth(allowed.depth, 2, max(2, 2 * self.config.layers))
        layers = 1 if shares else self.config.layers
        target = self.target(setting.d_model, layers, depth.repeats)
        mixers = [draw.choose(f"layer{i}.sequence", allowed.sequence) for i in range(layers)]
        channel = draw.choose("channel", allowed.channel) if allowed.channel else None
        multi = any(m in allowed.multi for m in mixers)
        readers = pen.readers(allowed.pairs) if multi else []
        mode = pen.router("mode", allowed.modes) if multi else None
        gate = None
        if allowed.gates and any(m in allowed.growing for m in mixers):
            gate = pen.router("gate", (NONE, *allowed.gates))
        heads = {m: pen.sequence(m, target.sequence, readers) for m in dict.fromkeys(mixers)}
        tail = (
            () if channel is None else (pen.channel(channel, target.channel_active, target.channel_stored),)
        )
        blocks = [
            block
            for mixer in mixers
            for block in gated_layer(heads[mixer], tail, gate if mixer in allowed.growing else None)
        ]
        return Architecture(
            vocab=setting.vocab,
            d_model=setting.d_model,
            stages=(Stage(blocks=tuple(blocks), depth=depth),),
            mode_router=mode,
        )

    def points(self, allowed: Menu, setting: Setting) -> Iterator[Point]:
        """One point for every sequence mixer, router at gate and at mode, channel mixer and depth policy."""
        layers = self.config.layers
        own, shared = policies(setting, allowed)

        def layered(*cycle: str, **more: str) -> Point:
            pattern = {f"layer{i}.sequence": cycle[i % len(cycle)] for i in range(layers)}
            return {**({"depth": own[0]} if own else {}), **pattern, **more}

        hybrids = [
            (constant, growing) if layers > 1 else (growing,)
            for growing in allowed.growing
            for constant in allowed.constant or (growing,)
        ]
        yield from (layered(m) for m in allowed.constant)
        yield from (layered(*hybrid) for hybrid in hybrids[:1])
        yield from (
            layered(*hybrids[i % len(hybrids)], gate=g) for i, g in enumerate(allowed.gates) if hybrids
        )
        for i, mode in enumerate(allowed.modes if allowed.multi else ()):
            pair = allowed.pairs[i % len(allowed.pairs)]
            yield layered(allowed.multi[i % len(allowed.multi)], mode=mode, readers="|".join(pair))
        yield from (layered(m) for m in allowed.multi[len(allowed.modes) :])
        yield from (layered(allowed.sequence[0], channel=c) for c in allowed.dense[1:])
        singles = (*allowed.growing[:1], *allowed.constant[:1])
        for policy in shared:
            for c in allowed.sparse:
                yield from ({"depth": policy, "layer0.sequence": m, "channel": c} for m in singles)
        # Weights shared over depth without experts: met by no budget on both FLOPs and parameters, and shown as such.
        for policy in shared[:1]:
            for c in allowed.dense[:1]:
                yield from ({"depth": policy, "layer0.sequence": m, "channel": c} for m in singles[:1])
        yield from (layered(m) for m in allowed.growing)
