"""Building mixers and contexts by hand, and running one sequence in pieces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import MixerBuild, State
from crossbreed.core.contracts.router import Decision
from crossbreed.core.host import Host

PARTS = Host.load(third_party=False)

SEQUENCE: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": ("attention", {"heads": 4, "kv_heads": 2, "head_size": 6}),
    "attention windowed": (
        "attention",
        {"heads": 2, "head_size": 8, "window": 7, "qk_norm": True, "gate": True, "norm": "head"},
    ),
    "attention to the strongest": (
        "attention",
        {"heads": 4, "kv_heads": 2, "head_size": 6, "window": 9, "top_k": 3},
    ),
    "attention convolved": (
        "attention",
        {"heads": 2, "head_size": 8, "rope_fraction": 0.5, "short_conv": {"activation": "silu", "on": "qkv"}},
    ),
    "attention of experts": (
        "attention",
        {
            "heads": 2,
            "head_size": 6,
            "projection_experts": {"experts": 3, "top_k": 3, "router_key": 4, "shared_scale": "learned"},
        },
    ),
    "mamba2": ("mamba2", {"heads": 4, "head_size": 6, "state_size": 5, "groups": 2}),
    "mamba2 bare": ("mamba2", {"heads": 2, "short_conv": None, "norm": "none", "gate": False, "skip": False}),
    "gated_deltanet": ("gated_deltanet", {"heads": 4, "key_heads": 2, "key_size": 6, "value_size": 5}),
    "multi tm": ("multi_mixer", {"readers": ["mamba2", "attention"], "heads": 2, "head_size": 6}),
    "multi tg": ("multi_mixer", {"readers": ["gated_deltanet", "attention"], "heads": 2, "head_size": 6}),
    "multi three": (
        "multi_mixer",
        {
            "readers": ["mamba2", {"name": "attention", "params": {"window": 5}}, "gated_deltanet"],
            "heads": 2,
            "head_size": 6,
            "short_conv": {"width": 3, "on": "qkv"},
        },
    ),
    "multi of experts": (
        "multi_mixer",
        {
            "readers": ["gated_deltanet", "attention"],
            "heads": 2,
            "head_size": 6,
            "projection_experts": {"experts": 2, "tied": False, "router_key": 4, "gate_norm": "l2"},
        },
    ),
}
CHANNEL: dict[str, tuple[str, dict[str, Any]]] = {
    "swiglu": ("swiglu", {"hidden": 20}),
    "experts": ("experts", {"experts": 5, "hidden": 6, "top_k": 3, "router_key": 8}),
    "experts linear": ("experts", {"experts": 4, "hidden": 6, "top_k": 2, "shared": 0, "router_key": None}),
}
ALL = SEQUENCE | CHANNEL
D_MODEL = 12


def build(
    name: str,
    params: dict[str, Any],
    *,
    d_model: int = D_MODEL,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    scale: float = 10.0,
    depths: int = 1,
) -> Any:
    """A mixer with linear weights ``scale`` times their initial size, so that gates and scores are far from flat."""
    torch.manual_seed(seed)
    config = PARTS.config("mixer", name, params)
    mixer = PARTS.factory("mixer", name)(config, MixerBuild(d_model, depths, parts=PARTS)).to(dtype)
    with torch.no_grad():
        for parameter in mixer.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return mixer


def case(key: str, **options: Any) -> Any:
    return build(*ALL[key], **options)


def random_input(batch: int, tokens: int, d_model: int = D_MODEL, seed: int = 1) -> Tensor:
    return torch.randn(
        batch, tokens, d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def context(
    batch: int,
    tokens: int,
    *,
    start: int = 0,
    phase: str = "prefill",
    starts: list[int] | None = None,
    **fields: Any,
) -> Context:
    """Positions from ``start``; ``starts`` are the first tokens of packed documents."""
    positions = torch.arange(start, start + tokens)
    document = None
    if starts is not None:
        document = torch.zeros(tokens, dtype=torch.int64)
        for at in starts:
            document[at:] += 1
            positions[at:] = torch.arange(tokens - at)
        document = document.expand(batch, tokens)
    return Context(
        positions_BT=positions.expand(batch, tokens),
        row_id_B=torch.arange(batch),
        document_BT=document,
        phase=phase,  # type: ignore[arg-type]
        **fields,
    )


def with_mode(mixer: Any, at: Context, seed: int = 3) -> Context:
    """A random choice of reader for each token, where the mixer has several."""
    count = len(getattr(mixer, "readers", ()))
    if count < 2 or at.mode is not None:
        return at
    generator = torch.Generator().manual_seed(seed)
    return at.at(mode=Decision(torch.randint(count, at.positions_BT.shape, generator=generator)))


def in_pieces(
    mixer: Any, x_BTD: Tensor, at: Context, cuts: list[int], state: State | None = None
) -> tuple[Tensor, State]:
    """Run pieces between ``cuts``, one-token pieces as decode; returns the joined output and the last state."""
    B, T, _ = x_BTD.shape
    state = mixer.init_state(B, dtype=x_BTD.dtype) if state is None else state
    outputs = []
    for start, stop in zip([0, *cuts], [*cuts, T], strict=True):
        piece = at.slice(start, stop)
        if stop - start == 1:
            piece = piece.at(phase="decode")
        y_BTD, state = mixer(x_BTD[:, start:stop], piece, state)
        outputs.append(y_BTD)
    return torch.cat(outputs, 1), state
