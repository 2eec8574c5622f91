"""AMOR and Oryx at their published sizes against their rivals, under one budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.budget.matcher import match
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.genome import Architecture, Router
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Shape
from crossbreed.presets import amor, oryx, rivals
from tests.core.budget.material import FLOPS, MEMORY, PARAMETERS, analytic, budget_of, within

PREFILL, ACTIVE = "prefill_flops_per_token", "active_parameters"
PLACE: dict[str, Any] = {"tokens": 2048, "dtype": "bfloat16"}
DISTILLED = Router(name="distilled")
CASES = [(scale, backbone) for scale in ("180m", "440m") for backbone in amor.BACKBONES]


@pytest.fixture(scope="module")
def costs(registry: Registry) -> CostModel:
    return analytic(registry)


def printed(what: str, certificate: Certificate) -> None:
    """Every residual, for ``pytest -s`` and for the report of a failure."""
    residuals = ", ".join(f"{q.quantity} {q.residual:+.3%}" for q in certificate.quantities)
    print(f"{what}: {residuals} ({certificate.path}: {certificate.dimensions})")


@pytest.mark.parametrize(("scale", "backbone"), CASES)
@pytest.mark.parametrize("rival", [rivals.serial, rivals.fused])
def test_amor_with_the_distilled_router_is_matched_by_its_hybrids(
    registry: Registry,
    costs: CostModel,
    scale: str,
    backbone: amor.Backbone,
    rival: Callable[[amor.AmorSizes, amor.Backbone], Architecture],
) -> None:
    """As many attention layers as K = 3: parameters and FLOPs of a pass matched, memory capped, within 0.5%."""
    sizes = amor.SCALES[scale]
    goal = budget_of(
        amor.amor(sizes, backbone, gate=DISTILLED), registry, costs, (PARAMETERS, PREFILL), (MEMORY,), **PLACE
    )
    hybrid = rival(sizes, backbone)
    layers = [sub for _, sub in hybrid.sublayers() if sub.mixer == "attention"]
    assert len(layers) == rivals.BLOCKS
    certificate = match(hybrid, goal, registry, costs).certificate
    printed(f"{rival.__name__} {backbone} {scale}", certificate)
    assert certificate.feasible, certificate.reason
    assert within(certificate)
    back = budget_of(hybrid, registry, costs, (PARAMETERS, PREFILL), (MEMORY,), **PLACE)
    assert match(amor.amor(sizes, backbone, gate=DISTILLED), back, registry, costs).certificate.feasible


@pytest.mark.parametrize(("scale", "backbone"), CASES)
def test_what_a_distilled_router_saves_is_not_saved_in_training(
    registry: Registry, costs: CostModel, scale: str, backbone: amor.Backbone
) -> None:
    """It is fitted to gates that were trained with their probes: FLOPs of training are the native model's."""
    sizes, at = amor.SCALES[scale], Shape(1, PLACE["tokens"], PLACE["dtype"])
    native, distilled, bare = (
        costs.estimate(registry.canonical(amor.amor(sizes, backbone, gate=gate)), at)
        for gate in (amor.GATE, DISTILLED, None)
    )
    probes = rivals.BLOCKS * 2 * sizes.d_model * sizes.vocab
    assert distilled.training_flops_per_token == native.training_flops_per_token
    assert native.training_flops_per_token - bare.training_flops_per_token == probes
    assert native.prefill_flops_per_token - distilled.prefill_flops_per_token > 0.98 * probes


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "backbone"), CASES)
@pytest.mark.parametrize("rival", [rivals.serial, rivals.fused])
def test_training_flops_of_a_distilled_router_are_matched_by_no_hybrid_and_the_certificate_says_why(
    registry: Registry,
    costs: CostModel,
    scale: str,
    backbone: amor.Backbone,
    rival: Callable[[amor.AmorSizes, amor.Backbone], Architecture],
) -> None:
    """At equal parameters no hybrid spends what the probes do in training, and AMOR cannot do without them."""
    sizes = amor.SCALES[scale]
    distilled, hybrid = amor.amor(sizes, backbone, gate=DISTILLED), rival(sizes, backbone)
    goal = budget_of(distilled, registry, costs, (PARAMETERS, FLOPS), (MEMORY,), **PLACE)
    missed = match(hybrid, goal, registry, costs).certificate
    assert not missed.feasible
    probes = rivals.BLOCKS * 2 * sizes.d_model * sizes.vocab
    assert {q.quantity: q.target - q.value for q in missed.quantities}[FLOPS] > probes / 2
    assert missed.reason is not None
    back = budget_of(hybrid, registry, costs, (PARAMETERS, FLOPS), (MEMORY,), **PLACE)
    reason = match(distilled, back, registry, costs).certificate.reason
    assert reason is not None
    assert f"{FLOPS} is +" in reason
    said = f"distilled at 1.0.gate, 1.1.gate, 1.2.gate: 3 x {probes // 3:,}, each a probe of the output head"
    assert said in reason


@pytest.mark.parametrize(("scale", "backbone"), CASES)
def test_native_probes_make_a_two_sided_flop_budget_infeasible_and_are_named(
    registry: Registry, costs: CostModel, scale: str, backbone: amor.Backbone
) -> None:
    """Three probes of a vocabulary of 128,256 are 6 D V FLOPs a token, which no width can give back."""
    sizes = amor.SCALES[scale]
    goal = budget_of(
        rivals.serial(sizes, backbone), registry, costs, (PARAMETERS, PREFILL), (MEMORY,), **PLACE
    )
    certificate = match(amor.amor(sizes, backbone), goal, registry, costs).certificate
    assert not certificate.feasible
    assert certificate.reason is not None
    assert f"{PREFILL} is +" in certificate.reason
    probe = 2 * sizes.d_model * sizes.vocab
    said = f"entropy_gate at 1.0.gate, 1.1.gate, 1.2.gate: 3 x {probe:,}, each a probe of the output head"
    assert said in certificate.reason
    # One-sided on FLOPs below, a rival of the native model has nothing to hold against it.
    capped = budget_of(amor.amor(sizes, backbone), registry, costs, (PARAMETERS,), (MEMORY, PREFILL), **PLACE)
    assert match(rivals.serial(sizes, backbone), capped, registry, costs).certificate.feasible


FREED = {
    # What a single mixer needs to spend Oryx's training FLOPs at its active parameters: Oryx computes both readers.
    "transformer": {"attention.kv_heads": "1..12"},
    "mamba2": {"d_model": None, "depth": None},
    "gdn": {"d_model": None, "depth": None, "gated_deltanet.heads": None},
}


@pytest.mark.parametrize("family", oryx.LINEAR)
def test_oryx_is_matched_by_its_three_baselines(
    registry: Registry, costs: CostModel, family: oryx.Family
) -> None:
    """Active parameters and training FLOPs within 0.5%, memory capped at the largest of the four."""
    sizes = oryx.SCALES["130m"]
    own = oryx.oryx(sizes, family)
    four = [own, *(oryx.baseline(sizes, name) for name in oryx.BASELINES)]
    at = Shape(1, PLACE["tokens"], PLACE["dtype"])
    largest = max(costs.estimate(registry.canonical(model), at).memory_bytes for model in four)
    goal = budget_of(own, registry, costs, (ACTIVE, FLOPS), (MEMORY,), values={MEMORY: largest}, **PLACE)
    stuck = match(oryx.baseline(sizes, "transformer"), goal, registry, costs).certificate
    assert stuck.reason is not None
    assert "Freeing attention.heads or d_model or depth" in stuck.reason
    for name in oryx.BASELINES:
        certificate = match(oryx.baseline(sizes, name), goal, registry, costs, free=FREED[name]).certificate
        printed(f"{name} for {family}", certificate)
        assert certificate.feasible, certificate.reason
        assert within(certificate)
        assert {q.quantity for q in certificate.quantities} == {ACTIVE, FLOPS, MEMORY}


def test_a_budget_of_a_preset_survives_storage(registry: Registry, costs: CostModel) -> None:
    goal = budget_of(
        oryx.oryx(oryx.SCALES["130m"], "tm"), registry, costs, (ACTIVE, FLOPS), (MEMORY,), **PLACE
    )
    assert Budget.read(goal.model_dump(mode="json")) == goal
