"""Dreamer (arXiv 2601.21582): one block of mixers over depth, sequence and experts, repeated (dreamer.md, sections 2 to 5).

Published sizes are unknown. The small ones are those of dreamer.md, section 5, where all models of a row have equal FLOPs and
parameters; the large ones are shapes at about the published 1B and 2B parameters, at depths 16 and 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Params, Router, Stage, Sublayer
from crossbreed.presets.preset import Preset

ACTIVE_PROJECTIONS = 2
"""Sets of projections a token uses, one of them shared (section 11, A11)."""
HALT_RATE = 0.5
"""Share of tokens that go one depth further after each, where depth is halted."""


@dataclass(frozen=True)
class DreamerSizes:
    """Sizes of one model.

    depth: times that the block runs, or layers. depth_heads: of depth attention. experts, hidden: routed experts and their
    width; a layered model has so many in each layer. top_k: of them a token uses, beside a shared one on top.
    """

    vocab: int
    d_model: int
    depth: int
    heads: int
    head_size: int
    depth_heads: int
    experts: int
    hidden: int
    top_k: int
    router_key: int = 16


def recurrent(sizes: DreamerSizes, depth_attention: bool = True) -> Architecture:
    """Dreamer (DR+DA), or without depth attention DR. Projections are as many sparse experts as depths, one shared."""
    block = _block(sizes, depth_attention, _light_projections(sizes, sizes.depth))
    return _model(sizes, Stage(blocks=(block,), depth=_repeated(sizes.depth)))


def layered(sizes: DreamerSizes, depth_attention: bool = False) -> Architecture:
    """The classic mixture-of-experts Transformer, every layer with weights of its own; or with depth attention."""
    depth = DepthPolicy(name="layered", repeats=sizes.depth)
    return _model(sizes, Stage(blocks=(_block(sizes, depth_attention),), depth=depth))


def mixture_of_recursions(sizes: DreamerSizes, rate: float = HALT_RATE) -> Architecture:
    """DR whose tokens stop recurring one by one, by a learned ``halt`` router with a target rate of going on."""
    body = recurrent(sizes, depth_attention=False)
    halt = Router(name="learned", params={"target_rate": rate, "loss_weight": 0.1})
    return body.model_copy(update={"stages": (body.stages[0].model_copy(update={"halt": halt}),)})


def prelude_core_coda(sizes: DreamerSizes, ends: int = 1) -> Architecture:
    """``ends`` layers with weights of their own, one block repeated on its input, ``ends`` layers again: ``sizes.depth`` in all.

    A layer before and after holds as many experts as one of ``depth`` layers would of all. Raises ConfigError unless the block
    runs twice.
    """
    repeats = sizes.depth - 2 * ends
    if ends < 1 or repeats < 2:
        raise ConfigError(
            f"a core between {ends} layers and {ends} must run twice, but the depth is {sizes.depth}."
        )
    core = Stage(
        blocks=(_block(sizes, False, _light_projections(sizes, repeats)),),
        depth=_repeated(repeats, inject=True),
    )
    own = replace(sizes, experts=max(sizes.top_k, sizes.experts // sizes.depth))
    end = Stage(blocks=(_block(own, False),), depth=DepthPolicy(name="layered", repeats=ends))
    return _model(sizes, end, core, end)


def _block(sizes: DreamerSizes, depth_attention: bool, projections: Params | None = None) -> Block:
    """Depth attention, sequence attention, experts, in this order; what writes into the stream starts scaled by depth."""
    light = {} if projections is None else {"projection_experts": projections}
    # Layers with routers of their own need not be told apart.
    untold = {"depth_encoding": "none"} if projections is None else {}
    heads = {"heads": sizes.depth_heads, "head_size": sizes.head_size}
    over_depth = Sublayer(mixer="depth_attention", params={**heads, **light})
    over_tokens = Sublayer(
        mixer="attention", params={"heads": sizes.heads, "head_size": sizes.head_size, **light}
    )
    experts = Sublayer(
        mixer="experts",
        params={
            "experts": sizes.experts,
            "hidden": sizes.hidden,
            "top_k": sizes.top_k,
            "shared_in_top_k": False,
            "router_key": sizes.router_key,
            **untold,
        },
    )
    sublayers = (over_depth, over_tokens, experts) if depth_attention else (over_tokens, experts)
    return Block(sublayers=sublayers, output_init="depth_scaled")


def _light_projections(sizes: DreamerSizes, depths: int) -> Params:
    return {
        "experts": depths - 1,
        "top_k": ACTIVE_PROJECTIONS,
        "shared": 1,
        "shared_in_top_k": True,
        "router_key": sizes.router_key,
    }


def _repeated(repeats: int, inject: bool = False) -> DepthPolicy:
    return DepthPolicy(name="recurrent", repeats=repeats, params={"inject": inject})


def _model(sizes: DreamerSizes, *stages: Stage) -> Architecture:
    return Architecture(vocab=sizes.vocab, d_model=sizes.d_model, tie_embeddings=False, stages=stages)


def _row(depth: int, top_k: int) -> DreamerSizes:
    """A row of section 5 without its experts: 64 tokens of vocabulary, width 128, 4 heads of 32 and 2 over depth."""
    return DreamerSizes(64, 128, depth, 4, 32, 2, 1, 1, top_k)


def _large(depth: int) -> DreamerSizes:
    """GPT-2's vocabulary, width 1024, 16 heads of 64 and 4 over depth, 8 routed experts a token."""
    return DreamerSizes(50_257, 1024, depth, 16, 64, 4, 1, 1, 8)


Experts = tuple[int, int] | tuple[int, int, int]
"""Routed experts (of each layer, in a layered model), their width, and how many a token uses where not as many as the row's."""

SCALES: dict[str, tuple[DreamerSizes, dict[str, Experts]]] = {
    "l8-k4": (
        _row(8, 4),
        {
            "dreamer": (108, 64),
            "dr": (76, 100),
            "layered": (6, 136),
            "layered-da": (15, 54, 10),
            "core": (55, 109),
        },
    ),
    "l8-k2": (
        _row(8, 2),
        {
            "dreamer": (102, 128),
            "dr": (73, 188),
            "layered": (6, 247),
            "layered-da": (9, 164, 3),
            "core": (53, 204),
        },
    ),
    "l16-k4": (
        _row(16, 4),
        {
            "dreamer": (252, 64),
            "dr": (173, 101),
            "layered": (7, 137),
            "layered-da": (21, 46, 12),
            "core": (146, 105),
        },
    ),
    "l16-k2": (
        _row(16, 2),
        {
            "dreamer": (208, 128),
            "dr": (148, 189),
            "layered": (6, 250),
            "layered-da": (9, 166, 3),
            "core": (126, 197),
        },
    ),
    "1b": (
        _large(16),
        {
            "dreamer": (512, 512),
            "dr": (454, 589),
            "layered": (22, 733),
            "layered-da": (22, 711),
            "core": (390, 608),
        },
    ),
    "2b": (
        _large(32),
        {
            "dreamer": (1088, 512),
            "dr": (964, 589),
            "layered": (23, 742),
            "layered-da": (24, 699),
            "core": (894, 598),
        },
    ),
}
"""Experts of each model at equal parameters and training FLOPs, at 64 tokens (rows) or 2048 (1b, 2b). The first three of a row
are those of section 5; the others were solved by the same rule. Layered models move in steps of ``depth`` experts. With depth
attention the row's k leaves the small ones at 1.5 to 2.4 % between two steps, so that they have narrower experts and more
of them a token, as step 4 of section 5 asks. All rows meet within 0.5 %, prelude-core-coda and the large shapes within 1 %."""

Build = Callable[[DreamerSizes], Architecture]
MODELS: dict[str, tuple[str, str, Build]] = {
    "dreamer": ("dreamer", "one block of depth attention, attention and experts, repeated", recurrent),
    "dr": (
        "dr",
        "one block of attention and experts, repeated",
        partial(recurrent, depth_attention=False),
    ),
    "layered-moe": ("layered", "layers of attention and experts", layered),
    "layered-da": (
        "layered-da",
        "layers of depth attention, attention and experts",
        partial(layered, depth_attention=True),
    ),
    "mor": (
        "dr",
        "one block of attention and experts, repeated until a learned router halts a token",
        mixture_of_recursions,
    ),
    "prelude-core-coda": (
        "core",
        "a layer, one block repeated on its input, a layer, all of attention and experts",
        prelude_core_coda,
    ),
}
"""Name -> (whose experts of a scale it has, summary, builder)."""


def sizes_of(model: str, scale: str) -> DreamerSizes:
    """The sizes of a model of ``MODELS`` at a scale of ``SCALES``."""
    body, experts = SCALES[scale]
    count, hidden, *used = experts[MODELS[model][0]]
    return replace(body, experts=count, hidden=hidden, top_k=used[0] if used else body.top_k)


def presets() -> Iterator[Preset]:
    """Dreamer and its rivals at every scale."""
    for name, (_, summary, build) in MODELS.items():
        family = "dreamer" if name == "dreamer" else "dreamer rivals"
        for scale in SCALES:
            yield Preset(f"{name}-{scale}", family, summary, partial(build, sizes_of(name, scale)))
