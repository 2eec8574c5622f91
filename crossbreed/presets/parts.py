"""The parts that presets are built from, at given sizes: sublayers, layers, and how many weights their matrices hold."""

from __future__ import annotations

from collections.abc import Sequence

from crossbreed.core.genome import Block, Params, Sublayer


def attention(d_model: int, head_size: int, **params: object) -> Sublayer:
    """Multi-head attention of the model's width, with rotary positions."""
    return Sublayer(
        mixer="attention", params={"heads": d_model // head_size, "head_size": head_size, **params}
    )


def mamba2(d_model: int, head_size: int, state_size: int) -> Sublayer:
    """Mamba-2 with its published expansion of 2, one group of B and C, and its norm's epsilon."""
    return Sublayer(
        mixer="mamba2",
        params={
            "heads": 2 * d_model // head_size,
            "head_size": head_size,
            "state_size": state_size,
            "norm_eps": 1e-5,
        },
    )


def gated_deltanet(d_model: int, head_size: int) -> Sublayer:
    """Gated DeltaNet with its published shape: keys of 3/4 of the width in all, values twice as wide."""
    heads = max(1, 3 * d_model // (4 * head_size))
    return Sublayer(
        mixer="gated_deltanet",
        params={"heads": heads, "key_size": head_size, "value_size": 2 * head_size},
    )


def multi_mixer(d_model: int, head_size: int, readers: Sequence[str], **params: object) -> Sublayer:
    """Several readers over shared keys and values of the model's width; ``readers`` cheapest first."""
    return Sublayer(
        mixer="multi_mixer",
        params={
            "readers": list(readers),
            "heads": d_model // head_size,
            "head_size": head_size,
            **params,
        },
    )


def swiglu(hidden: int) -> Sublayer:
    """A gated feed-forward layer."""
    return Sublayer(mixer="swiglu", params={"hidden": hidden})


def layer(mixer: Sublayer, channel: Sublayer, **fields: object) -> Block:
    """A pre-norm layer: x += mixer(norm(x)); x += channel(norm(x))."""
    return Block.model_validate({"sublayers": (mixer, channel), **fields})


def matrix_weights(sublayer: Sublayer, d_model: int) -> int:
    """Weights in the matrices of a single sequence mixer built here, D x (projections + output); small tensors apart."""
    p: Params = sublayer.params
    match sublayer.mixer:
        case "attention":
            width = 4 * p["heads"] * p["head_size"]
        case "mamba2":
            inner = p["heads"] * p["head_size"]
            width = 3 * inner + 2 * p["state_size"]
        case "gated_deltanet":
            width = p["heads"] * (2 * p["key_size"] + 3 * p["value_size"])
        case other:
            raise ValueError(f"matrix_weights knows no mixer {other!r}")
    return int(d_model * width)
