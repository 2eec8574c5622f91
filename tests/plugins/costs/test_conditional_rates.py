"""Conditional work between none and all of it: executed FLOPs as dispatched, algorithmic ones token by token."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from crossbreed.core.conformance.flop_count import count_flops
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.operating_points import realised_rates
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel

V, D, H, K, DEPTHS, T = 16, 16, 2, 8, 4, 96
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
ROUTER = {"name": "learned"}
ATTENTION = {"mixer": "attention", "params": {"heads": H, "head_size": K}}
DEPTH = {"mixer": "depth_attention", "params": {"heads": H, "head_size": K}}
EARLIER = {"mixer": "depth_attention", "params": {"heads": H, "head_size": K, "sees_current": False}}


def mixer(name: str, **params: Any) -> dict[str, Any]:
    return {"mixer": name, "params": {"heads": H, "head_size": K, **params}}


def gated(*sublayers: dict[str, Any], repeats: int = 1) -> dict[str, Any]:
    depth = {"name": "recurrent", "repeats": repeats}
    return {"stages": [{"blocks": [{"sublayers": list(sublayers), "gate": ROUTER}], "depth": depth}]}


def halted(*sublayers: dict[str, Any]) -> dict[str, Any]:
    depth = {"name": "recurrent", "repeats": DEPTHS}
    return {"stages": [{"blocks": [{"sublayers": list(sublayers)}], "depth": depth, "halt": ROUTER}]}


def switched(*readers: Any) -> dict[str, Any]:
    block = {"sublayers": [mixer("multi_mixer", readers=list(readers))]}
    return {"stages": [{"blocks": [block]}], "mode_router": ROUTER}


CASES = {
    "attention, gated": gated(ATTENTION),
    "window, gated": gated(mixer("attention", window=24)),
    "top-k, gated": gated(mixer("attention", top_k=5)),
    "mamba2, gated": gated(mixer("mamba2", state_size=8)),
    "two mixers, gated": gated(ATTENTION, {"mixer": "swiglu", "params": {"hidden": 24}}),
    "depth attention, gated": gated(DEPTH, repeats=DEPTHS),
    "attention as a mode": switched("mamba2", "attention"),
    "attention that writes where it reads": switched(
        {"name": "mamba2"}, {"name": "attention", "params": {"writes": "when_read"}}
    ),
    "attention, halted": halted(ATTENTION),
    "depth attention, halted": halted(DEPTH),
    "depth attention without the current depth, halted": halted(EARLIER, ATTENTION),
}


def built(registry: Registry, data: dict[str, Any]) -> Architecture:
    return registry.canonical(Architecture.model_validate({"vocab": V, "d_model": D, **data}))


def forced(model: LanguageModel, rate: float) -> dict[str, torch.Tensor]:
    """That share of the tokens takes the dearer choice, at every site the same tokens."""
    chosen_BT = (torch.arange(T)[None] % 4 < 4 * rate).long()
    return dict.fromkeys(model.sites(), chosen_BT)


@pytest.mark.parametrize("case", CASES)
def test_executed_prefill_is_what_is_dispatched_at_every_quarter(registry: Registry, case: str) -> None:
    genome = built(registry, CASES[case])
    model, costs = (
        LanguageModel(genome, registry).eval(),
        registry.factory("cost", "analytic")(None, registry),
    )
    tokens_BT = torch.arange(T)[None] % V
    for rate in QUARTERS:
        recorder = Recorder()
        context = model.context(tokens_BT, forced=forced(model, rate), recorder=recorder)
        with torch.no_grad():
            counted = count_flops(lambda at=context: model.logits(model(tokens_BT, at)[0])) / T  # type: ignore[misc]
        ledger = costs.estimate(genome, Shape(1, T), rates=realised_rates([recorder]))
        assert ledger.executed_prefill_flops_per_token == pytest.approx(counted, rel=1e-3), rate


@pytest.mark.parametrize("sees_current", [True, False])
@pytest.mark.parametrize("go_on", [(1.0, 1.0, 1.0), (0.75, 2 / 3, 0.5), (0.5, 0.0, 0.0), (0.0, 0.0, 0.0)])
def test_tokens_that_halt_pay_for_the_depths_that_they_read_at(
    registry: Registry, sees_current: bool, go_on: tuple[float, float, float]
) -> None:
    """Token by token: each reads its slots at every depth it reaches, and writes at all of them."""
    sublayer = DEPTH if sees_current else EARLIER
    genome = built(registry, halted(sublayer))
    costs = registry.factory("cost", "analytic")(None, registry)
    rates = {f"0.{depth}.halt": (1 - go, go) for depth, go in enumerate(go_on)}
    ledger = costs.estimate(genome, Shape(1, T), rates=rates)
    (line,) = (part for part in ledger.parts if part.name == "depth_attention")
    multiply_adds, alive = 0, list(range(T))
    for depth in range(DEPTHS):
        if depth:
            alive = alive[: round(len(alive) * go_on[depth - 1])]
        multiply_adds += T * 2 * D * H * K  # its key and its value, by every token
        for _ in alive:
            multiply_adds += 2 * D * H * K  # its query, and the way back
            for _slot in range(depth + 1 if sees_current else depth):
                multiply_adds += 2 * H * K  # a score, and a weighted value
    assert line.prefill_flops_per_token * T == pytest.approx(2 * multiply_adds)
    assert line.decode_flops_per_token == line.prefill_flops_per_token
    # A gradient computes every depth for every token.
    full = costs.estimate(genome, Shape(1, T), rates=dict.fromkeys(rates, (0.0, 1.0)))
    assert ledger.training_flops_per_token == full.training_flops_per_token
