"""A cost model under check: what it says of small models made of parts whose costs are known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.subject import Subject
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Router, Stage, Sublayer
from crossbreed.core.host import Registry
from crossbreed.core.ledger import QUANTITIES, Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel

VOCAB, D_MODEL = 32, 16
FLOPS = ("training_flops_per_token", "prefill_flops_per_token", "decode_flops_per_token")
EXECUTED = tuple(f"executed_{name}" for name in FLOPS)
COUNTS = (
    *FLOPS,
    *EXECUTED,
    "recompute_flops_per_token",
    "weight_bytes",
    "scratch_bytes",
    "kept_bytes_per_token",
    "decode_traffic_bytes_per_token",
    *(name for name in QUANTITIES if name not in FLOPS),
)
"""Every number of a ledger."""
HALF = (0.5, 0.5)


class CostSubject(Subject):
    """A registered cost model, asked about models of probes."""

    kind = "cost"

    @cached_property
    def parts(self) -> Registry:
        return probes.with_probes(self.registry)

    def ranges(self) -> Mapping[str, Any]:
        # Cost models have no settings that a search draws.
        return {}

    def model(self, settings: Mapping[str, Any]) -> CostModel:
        """A cost model of its own."""
        made: CostModel = self.registry.factory("cost", self.name)(self.config(settings), self.parts)
        return made

    def ledger(self, settings: Mapping[str, Any], architecture: Architecture, **named: Any) -> Ledger:
        """What a fresh cost model says of an architecture at a shape; ``rates`` where given."""
        shape, rates = Shape(**{"tokens": 24, **named.pop("shape", {})}), named.pop("rates", None)
        return self.model(settings).estimate(architecture, shape, rates=rates)

    def built(self, architecture: Architecture) -> LanguageModel:
        return LanguageModel(architecture, self.parts, seed=1)


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


def forced(sites: Mapping[str, Any], tokens: int) -> dict[str, Tensor]:
    """Choices by which half of those who are asked take choice 1, at every site on its own."""
    number_T = torch.arange(tokens)
    found = {}
    for site in sites:
        depth = int(site.split(".")[-2]) if "." in site else 0
        found[site] = (number_T >> depth & 1)[None]
    return found
