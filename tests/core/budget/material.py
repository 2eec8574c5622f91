"""Genomes, budgets and cost models that the matching tests share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.genome import Architecture, Block, DepthPolicy, Stage, Sublayer
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Shape

FLOPS, PARAMETERS, MEMORY = "training_flops_per_token", "parameters", "memory_bytes"


def layer(
    sequence: str, channel: str = "swiglu", sequence_params: Any = None, **channel_params: Any
) -> Block:
    """A sequence mixer and a channel mixer."""
    subs = (
        Sublayer(mixer=sequence, params=sequence_params or {}),
        Sublayer(mixer=channel, params=channel_params),
    )
    return Block(sublayers=subs)


def genome(
    *blocks: Block, depth: DepthPolicy | None = None, vocab: int = 64, d_model: int = 64, **fields: Any
) -> Architecture:
    stage = Stage(blocks=blocks, depth=depth or DepthPolicy())
    return Architecture(vocab=vocab, d_model=d_model, stages=(stage,), **fields)


def analytic(registry: Registry) -> CostModel:
    model: CostModel = registry.factory("cost", "analytic")(registry.config("cost", "analytic", {}), registry)
    return model


def budget_of(
    architecture: Architecture,
    registry: Registry,
    costs: CostModel,
    match: Iterable[str],
    cap: Iterable[str] = (),
    *,
    tolerance: float = 0.005,
    tokens: int = 32,
    dtype: str = "float32",
    values: dict[str, float] | None = None,
) -> Budget:
    """A budget whose quantities are those of an architecture, but for ``values``."""
    rules = {
        "shape": {"tokens": tokens, "dtype": dtype},
        "match": dict.fromkeys(match, tolerance),
        "cap": dict.fromkeys(cap, tolerance),
        "values": values or {},
    }
    ledger = costs.estimate(registry.canonical(architecture), Shape(1, tokens, dtype))
    return Budget.read(rules).at_reference(ledger)


def within(certificate: Certificate) -> bool:
    """Every residual checked again, from the numbers alone."""
    return all(
        (abs(q.value / q.target - 1) if q.kind == "match" else q.value / q.target - 1) <= q.tolerance
        for q in certificate.quantities
    )
