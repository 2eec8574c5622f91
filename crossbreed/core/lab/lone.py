"""Mixers by themselves: architectures that hold one mixer of another, as it is configured there."""

from __future__ import annotations

from collections.abc import Iterator

from crossbreed.core import genome
from crossbreed.core.genome import Architecture, Sublayer
from crossbreed.core.model.legality import mode_readers

VOCAB = 64
DEPTHS = 2
"""Times that a mixer is run over its own output at most: more of them make much of what rounding does in the first."""


def lone_mixers(architecture: Architecture) -> Iterator[Architecture]:
    """For each mixer, at the width and under the depth policy and mode router it has, an architecture of nothing else.

    Equal ones come once. Their vocabulary is VOCAB.
    """
    seen = []
    for (s, _, _), sublayer in architecture.sublayers():
        depth = architecture.stages[s].depth
        few = depth.model_copy(update={"repeats": min(depth.repeats, DEPTHS)})
        one = genome.Stage(blocks=(genome.Block(sublayers=(sublayer,)),), depth=few)
        alone = Architecture(vocab=VOCAB, d_model=architecture.d_model, stages=(one,))
        if mode_readers(alone):
            alone = alone.model_copy(update={"mode_router": architecture.mode_router})
        if alone not in seen:
            seen.append(alone)
            yield alone


def sublayer_of(alone: Architecture) -> Sublayer:
    """The one that holds the mixer."""
    return alone.stages[0].blocks[0].sublayers[0]
