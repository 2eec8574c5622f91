"""Contexts without a model, for routers tested alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context


def context(batch: int, tokens: int, *, start: int = 0, **fields: Any) -> Context:
    """A piece of ``batch`` rows at positions ``start`` and up. The entropy of a token is its first feature."""
    positions_BT = torch.arange(start, start + tokens).expand(batch, tokens)
    settings: dict[str, Any] = {
        "positions_BT": positions_BT,
        "row_id_B": torch.arange(batch),
        "site": "0.0.0.gate",
        "output_entropy": lambda h_BTD: h_BTD[..., 0],
    }
    return Context(**{**settings, **fields})


def entropies(h_BT: Tensor) -> Tensor:
    """Hidden states h_BTD whose entropy under ``context`` is ``h_BT``."""
    return torch.stack([h_BT, torch.ones_like(h_BT)], dim=-1)


def positions_of(*lengths: int) -> tuple[Tensor, Tensor]:
    """(positions_BT, document_BT) of one row packed with documents of these lengths."""
    positions = torch.cat([torch.arange(n) for n in lengths])
    documents = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])
    return positions[None], documents[None]
