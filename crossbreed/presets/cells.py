"""Any router at any site of any body: one field of a genome, and what the site needs to exist.

The other sites keep what the body publishes. Works on genomes of the sequence mixers that presets are built from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Router, Stage, Sublayer
from crossbreed.presets.parts import multi_mixer

Site = Literal["gate", "mode", "halt"]

RECURRENT = ("mamba2", "gated_deltanet")
MULTI = "multi_mixer"
SEQUENCE = (*RECURRENT, "attention", MULTI)


def with_router(body: Architecture, site: Site, router: Router) -> Architecture:
    """``body`` with ``router`` at ``site``.

    gate: in place of the body's own gates, or else on every sequence mixer, alone in its block.
    mode: in place of the body's own mode router, or else over multi-mixers, which the sequence mixers without a gate become.
    halt: in the first stage that repeats one set of weights, or else in the first stage, whose depth becomes recurrent.

    Raises ConfigError for a body without a sequence mixer.
    """
    if not any(sub.mixer in SEQUENCE for _, sub in body.sublayers()):
        raise ConfigError(f"a router at {site} needs a body with a sequence mixer: {', '.join(SEQUENCE)}.")
    return {"gate": _gate, "mode": _mode, "halt": _halt}[site](body, router)


def _gate(body: Architecture, router: Router) -> Architecture:
    own = any(block.gate is not None for stage in body.stages for block in stage.blocks)

    def gated(block: Block) -> list[Block]:
        if own:
            return [block if block.gate is None else block.model_copy(update={"gate": router})]
        if not any(sub.mixer in SEQUENCE for sub in block.sublayers):
            return [block]
        if block.arrangement != "sequential":
            return [block.model_copy(update={"gate": router})]
        # In sequence, a block of several sublayers is as many blocks of one.
        return [
            block.model_copy(update={"sublayers": (sub,), "gate": router if sub.mixer in SEQUENCE else None})
            for sub in block.sublayers
        ]

    return _with_blocks(body, gated)


def _mode(body: Architecture, router: Router) -> Architecture:
    if body.mode_router is None:

        def moded(block: Block) -> list[Block]:
            if block.gate is not None:
                return [block]
            subs = tuple(
                _multi(sub, body.d_model) if sub.mixer in SEQUENCE else sub for sub in block.sublayers
            )
            return [block.model_copy(update={"sublayers": subs})]

        body = _with_blocks(body, moded)
    return body.model_copy(update={"mode_router": router})


def _halt(body: Architecture, router: Router) -> Architecture:
    recurrent = [i for i, stage in enumerate(body.stages) if stage.depth.name == "recurrent"]
    index = recurrent[0] if recurrent else 0
    stage = body.stages[index]
    depth = stage.depth
    if not recurrent:
        depth = DepthPolicy(name="recurrent", repeats=max(2, depth.repeats))
    stages = list(body.stages)
    stages[index] = stage.model_copy(update={"depth": depth, "halt": router})
    return body.model_copy(update={"stages": tuple(stages)})


def _multi(mixer: Sublayer, d_model: int) -> Sublayer:
    """A multi-mixer of the model's width with a sequence mixer's own reader and attention; attention's rival is Gated DeltaNet.

    Projections stay sparse experts where they were.
    """
    size = int(mixer.params["key_size" if mixer.mixer == "gated_deltanet" else "head_size"])
    linear = mixer.mixer if mixer.mixer in RECURRENT else "gated_deltanet"
    kept = {name: value for name, value in mixer.params.items() if name == "projection_experts"}
    return multi_mixer(d_model, size, (linear, "attention"), **kept)


def _with_blocks(body: Architecture, change: Callable[[Block], list[Block]]) -> Architecture:
    stages: list[Stage] = []
    for stage in body.stages:
        blocks = tuple(made for block in stage.blocks for made in change(block))
        stages.append(stage.model_copy(update={"blocks": blocks}))
    return body.model_copy(update={"stages": tuple(stages)})
