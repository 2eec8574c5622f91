"""Small models made of probes, whose costs are known."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from crossbreed.core.conformance import probes
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Router, Stage, Sublayer

VOCAB, D_MODEL = 32, 16


def layers(
    *mixers: str,
    width: int = 6,
    repeats: int = 1,
    shared: bool = False,
    gate: Router | None = None,
    halt: Router | None = None,
    d_model: int = D_MODEL,
    vocab: int = VOCAB,
    tied: bool = True,
) -> Architecture:
    """One stage with a block for each mixer, all with one gate."""
    blocks = tuple(Block(sublayers=(Sublayer(mixer=m, params={"width": width}),), gate=gate) for m in mixers)
    depth = DepthPolicy(name=probes.SHARED if shared else probes.OWN, repeats=repeats)
    return Architecture(
        vocab=vocab,
        d_model=d_model,
        tie_embeddings=tied,
        stages=(Stage(blocks=blocks, depth=depth, halt=halt),),
    )


BOTH = (probes.FADING, probes.LOOKING)
SIGN = Router(name=probes.SIGN)
SAMPLES: dict[str, Architecture] = {
    "one block": layers(probes.FADING),
    "two blocks": layers(*BOTH),
    "untied": layers(*BOTH, tied=False),
    "layered": layers(*BOTH, repeats=3),
    "recurrent": layers(*BOTH, repeats=3, shared=True),
    "gated": layers(*BOTH, gate=SIGN),
    "halting": layers(*BOTH, repeats=3, shared=True, halt=SIGN),
}
"""Small models that together have what a genome can have: own and shared weights, gates and halts."""


def forced(sites: Iterable[str], tokens: int) -> dict[str, Tensor]:
    """Choices by which half of those who are asked take choice 1, at every site on its own."""
    number_T = torch.arange(tokens)
    found = {}
    for site in sites:
        depth = int(site.split(".")[-2]) if "." in site else 0
        found[site] = (number_T >> depth & 1)[None]
    return found
