"""Entropy gates without a model, and entropies for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crossbreed.core.contracts.router import RouterBuild, SiteKind
from crossbreed.plugins.routers.configs import EntropyGateConfig
from crossbreed.plugins.routers.entropy_gate import EntropyGate


def build(kind: SiteKind = "gate", choices: int = 2) -> RouterBuild:
    return RouterBuild("0.0.gate", kind, d_model=2, vocab=23, choices=choices)


def router(kind: SiteKind = "gate", **settings: Any) -> EntropyGate:
    return EntropyGate(EntropyGateConfig(**settings), build(kind))


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Uniform in [0, 1), in float64, as normalised entropies are."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
