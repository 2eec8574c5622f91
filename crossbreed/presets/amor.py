"""AMOR (arXiv 2602.13215): a recurrent backbone, then K attention blocks behind entropy gates (amor.md, section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Literal

from crossbreed.core.genome import Architecture, Block, DepthPolicy, OutputScale, Router, Stage, Sublayer
from crossbreed.presets.parts import attention, gated_deltanet, layer, mamba2, swiglu
from crossbreed.presets.preset import Preset, Published

KAPPA = 0.2
RATE = round(1.0 - NormalDist().cdf(KAPPA), 4)
"""Share of tokens above the threshold on Gaussian entropies: 42 %, where the third version measures about 40 %."""
GATE = Router(
    name="entropy_gate",
    params={"kappa": KAPPA, "momentum": 0.99, "mu_init": 0.3, "sigma_init": 0.1, "warm_start": False},
)
"""The gate as released (amor.md, section 3)."""


@dataclass(frozen=True)
class AmorSizes:
    """Sizes of one scale. ``hidden``: SwiGLU width. ``state_size``: Mamba-2's."""

    vocab: int
    d_model: int
    layers: int
    hidden: int
    head_size: int = 64
    state_size: int = 128


SCALES = {
    "mini": AmorSizes(512, 128, 4, 256, head_size=32, state_size=16),
    "180m": AmorSizes(128_256, 768, 12, 1216),
    "440m": AmorSizes(128_256, 1024, 24, 1984),
    "1.5b": AmorSizes(128_256, 2048, 24, 4096),
}
"""The published scales (amor.md, section 4), and a miniature (section 9)."""

PUBLISHED_PARAMETERS = {
    ("gdn", "180m"): 181_967_832,
    ("gdn", "440m"): 442_133_056,
    ("gdn", "1.5b"): 1_524_025_472,
    ("mamba2", "180m"): 184_396_896,
    ("mamba2", "440m"): 448_650_496,
    ("mamba2", "1.5b"): 1_537_425_920,
}
"""Total parameters at K = 3 (amor.md, section 4)."""

Backbone = Literal["gdn", "mamba2"]
TITLES: dict[Backbone, str] = {"gdn": "Gated DeltaNet", "mamba2": "Mamba-2"}
BACKBONES: dict[Backbone, Callable[[AmorSizes], Sublayer]] = {
    "gdn": lambda s: gated_deltanet(s.d_model, s.head_size),
    "mamba2": lambda s: mamba2(s.d_model, s.head_size, s.state_size),
}


def amor(
    sizes: AmorSizes,
    backbone: Backbone,
    blocks: int = 3,
    residual: Literal["classic", "h"] = "classic",
    gate: Router | None = GATE,
) -> Architecture:
    """AMOR with ``blocks`` attention blocks (K); ``gate`` None attends always.

    ``classic``: the backbone's final norm enters the residual stream, and block 0 has no norm of its own. ``h``: the
    stream stays as it is and all blocks are alike. Output matrices of the blocks start at zero, so that they do nothing at
    first; a per-channel scale starts at 1/2.
    """
    classic = residual == "classic"
    mixer = attention(sizes.d_model, sizes.head_size)
    gated = [
        Block(
            sublayers=(mixer,),
            norm="none" if classic and index == 0 else "pre",
            output_scale=OutputScale(),
            output_init="zero",
            gate=gate,
        )
        for index in range(blocks)
    ]
    return Architecture(
        vocab=sizes.vocab,
        d_model=sizes.d_model,
        stages=(
            stack(layer(BACKBONES[backbone](sizes), swiglu(sizes.hidden)), sizes.layers),
            Stage(blocks=tuple(gated), entry_norm=classic),
        ),
    )


def stack(block: Block, layers: int) -> Stage:
    """``layers`` equal blocks with weights of their own."""
    return Stage(blocks=(block,), depth=DepthPolicy(name="layered", repeats=layers))


def presets() -> Iterator[Preset]:
    """The six released variants at every scale: both backbones; K = 3 classic, K = 1, K = 3 in mode h."""
    for backbone, title in TITLES.items():
        for scale, sizes in SCALES.items():
            name = f"amor-{backbone}-{scale}"
            count = PUBLISHED_PARAMETERS.get((backbone, scale))
            published = (
                () if count is None else (Published("parameters", count, "sizes of the released models"),)
            )
            model = partial(amor, sizes, backbone)
            yield Preset(name, "amor", f"{title}, then 3 entropy-gated attention blocks", model, published)
            yield Preset(
                f"{name}-k1", "amor", f"{title}, then 1 entropy-gated attention block", partial(model, 1)
            )
            summary = f"{title}, then 3 entropy-gated attention blocks on the un-normed stream"
            yield Preset(f"{name}-h", "amor", summary, partial(model, residual="h"))
