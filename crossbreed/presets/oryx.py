"""Oryx (arXiv 2605.28769): multi-mixer layers whose readers a mode router chooses (oryx.md, sections 2 to 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from crossbreed.core.genome import Architecture, Router, Stage
from crossbreed.presets.amor import stack
from crossbreed.presets.parts import (
    attention,
    gated_deltanet,
    layer,
    mamba2,
    matrix_weights,
    multi_mixer,
    swiglu,
)
from crossbreed.presets.preset import Preset, Published


@dataclass(frozen=True)
class OryxSizes:
    """Sizes of one scale. ``heads``: of the Transformer baseline. ``segment``: tokens that share a drawn mode."""

    vocab: int
    d_model: int
    layers: int
    heads: int
    head_size: int = 128
    segment: int = 128


VOCAB = 50_257
MINIATURE = "mini"
SCALES = {
    MINIATURE: OryxSizes(512, 256, 4, 4, head_size=32, segment=32),
    "130m": OryxSizes(VOCAB, 768, 12, 12),
    "380m": OryxSizes(VOCAB, 1024, 24, 16),
    "810m": OryxSizes(VOCAB, 1536, 24, 16),
    "1.4b": OryxSizes(VOCAB, 2048, 24, 16),
}
"""GPT-3's shapes, which reproduce the paper's sizes (oryx.md, section 2), and a miniature (section 9)."""

Family = Literal["tm", "tg"]
LINEAR: dict[Family, str] = {"tm": "mamba2", "tg": "gated_deltanet"}
TITLES: dict[Family, str] = {"tm": "Mamba-2", "tg": "Gated DeltaNet"}


def oryx(sizes: OryxSizes, family: Family, mode_router: Router | None = None) -> Architecture:
    """Attention with Mamba-2 (``tm``) or Gated DeltaNet (``tg``) over shared keys and values, and a SwiGLU of 8D/3.

    Modes are drawn for each segment, attention to linear 1 to 3, unless another ``mode_router`` is given. Matrices that
    write into the stream start scaled by depth, a default the paper leaves open (section 10).
    """
    mixer = multi_mixer(sizes.d_model, sizes.head_size, (LINEAR[family], "attention"))
    drawn = Router(name="segment_random", params={"segment": sizes.segment, "probability": 0.25})
    block = layer(mixer, swiglu(round(8 * sizes.d_model / 3)), output_init="depth_scaled")
    return _model(sizes, stack(block, sizes.layers)).model_copy(update={"mode_router": mode_router or drawn})


Baseline = Literal["transformer", "mamba2", "gdn"]
BASELINES: dict[Baseline, str] = {"transformer": "Attention", "mamba2": "Mamba-2", "gdn": "Gated DeltaNet"}


def baseline(sizes: OryxSizes, name: Baseline) -> Architecture:
    """A single-mixer rival: 13 D^2 weights a layer as Oryx uses per token, so SwiGLU takes what its mixer leaves.

    Head sizes are those of section 4: Mamba-2 keys of 128 and values of 64, Gated DeltaNet 128 and 256. At 130m the latter's
    6 D^2 would be four and a half heads; it has four.
    """
    D = sizes.d_model
    mixer = {
        "transformer": attention(D, D // sizes.heads),
        "mamba2": mamba2(D, sizes.head_size // 2, sizes.head_size),
        "gdn": gated_deltanet(D, sizes.head_size),
    }[name]
    hidden = round((13 * D**2 - matrix_weights(mixer, D)) / (3 * D))
    return _model(sizes, stack(layer(mixer, swiglu(hidden), output_init="depth_scaled"), sizes.layers))


def published_active(sizes: OryxSizes) -> int:
    """13 D^2 L + V D: the paper's sizes, which leave small tensors out (oryx.md, section 2)."""
    return 13 * sizes.d_model**2 * sizes.layers + sizes.vocab * sizes.d_model


def _model(sizes: OryxSizes, stage: Stage) -> Architecture:
    return Architecture(vocab=sizes.vocab, d_model=sizes.d_model, stages=(stage,))


def presets() -> Iterator[Preset]:
    """Both families at every scale."""
    for family, title in TITLES.items():
        for scale, sizes in SCALES.items():
            summary = (
                f"{title} and attention over shared keys and values, drawn in segments of {sizes.segment}"
            )
            model = partial(oryx, sizes, family)
            yield Preset(f"oryx-{family}-{scale}", "oryx", summary, model, _published(scale))


def baselines() -> Iterator[Preset]:
    """The single-mixer models of the paper, at every scale."""
    for name, title in BASELINES.items():
        for scale, sizes in SCALES.items():
            summary = f"{title} and SwiGLU in every layer, 13 D^2 weights each"
            model = partial(baseline, sizes, name)
            yield Preset(f"{name}-13d2-{scale}", "oryx rivals", summary, model, _published(scale))


def _published(scale: str) -> tuple[Published, ...]:
    if scale == MINIATURE:
        return ()
    count = published_active(SCALES[scale])
    return (Published("active_matrix_parameters", count, "13 D^2 L + V D, the size the paper quotes"),)
