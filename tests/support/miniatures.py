"""Miniatures of the published systems and their rivals, by the functions that build the full-size presets."""

from __future__ import annotations

from crossbreed.core.genome import Architecture
from crossbreed.presets import dreamer, oryx, rivals
from crossbreed.presets.amor import AmorSizes, amor
from crossbreed.presets.dreamer import DreamerSizes
from crossbreed.presets.oryx import OryxSizes

V = 23
AMOR = AmorSizes(V, 16, 2, 20, head_size=8, state_size=6)
ORYX = OryxSizes(V, 16, 2, 2, head_size=8, segment=4)
DREAMER = DreamerSizes(V, 16, 3, 2, 8, 1, experts=4, hidden=8, top_k=2, router_key=4)

BODIES = {
    "amor": amor(AMOR, "gdn", blocks=2),
    "oryx": oryx.oryx(ORYX, "tm"),
    "dreamer": dreamer.recurrent(DREAMER),
}
"""The three bodies that routers are put into."""


def trainable(vocab: int) -> dict[str, Architecture]:
    """Every system and every rival, wide enough to learn something in 50 steps."""
    small = AmorSizes(vocab, 32, 2, 48, head_size=16, state_size=8)
    mixed = OryxSizes(vocab, 32, 2, 2, head_size=16, segment=4)
    found = {
        "transformer": rivals.transformer(small),
        "mamba2": rivals.recurrent(small, "mamba2"),
        "gdn": rivals.recurrent(small, "gdn"),
        "amor-mamba2": amor(small, "mamba2"),
        "amor-gdn": amor(small, "gdn"),
        "amor-gdn-k1": amor(small, "gdn", 1),
        "amor-gdn-h": amor(small, "gdn", residual="h"),
        "oryx-tm": oryx.oryx(mixed, "tm"),
        "oryx-tg": oryx.oryx(mixed, "tg"),
    }
    deep = DreamerSizes(vocab, 32, 4, 2, 16, 1, experts=4, hidden=24, top_k=2, router_key=4)
    found |= {name: build(small, "gdn") for name, (_, build) in rivals.OF_BACKBONE.items()}
    # Of two layers, AMOR's number of blocks would replace both.
    found["serial"] = rivals.serial(small, "gdn", places=[1])
    return found | {name: build(deep) for name, (_, _, build) in dreamer.MODELS.items()}
