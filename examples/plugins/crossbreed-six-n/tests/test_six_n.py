"""What the shorthand counts, and what it does not see."""

import re
from pathlib import Path

import pytest

from crossbreed import Architecture, Host, Shape
from crossbreed.core.conformance.suite import check

PARTS = Host.load()
README = Path(__file__).parents[1] / "README.md"


def genome(*, repeats=1, name="layered", tied=True):
    sublayers = [
        {"mixer": "attention", "params": {"heads": 2, "head_size": 4}},
        {"mixer": "swiglu", "params": {"hidden": 16}},
    ]
    stage = {"depth": {"name": name, "repeats": repeats}, "blocks": [{"sublayers": sublayers}]}
    data = {"vocab": 11, "d_model": 8, "tie_embeddings": tied, "stages": [stage]}
    return PARTS.canonical(Architecture.model_validate(data))


def ledger(model, architecture, tokens=64, **params):
    built = PARTS.factory("cost", model)(PARTS.config("cost", model, params), PARTS)
    return built.estimate(architecture, Shape(tokens=tokens))


def test_six_flops_a_weight_in_training_and_two_forward():
    found = ledger("six_n", genome(tied=False))
    weights = found.active_parameters - 11 * 8
    assert found.training_flops_per_token == 6 * weights
    assert found.prefill_flops_per_token == found.decode_flops_per_token == 2 * weights


def test_a_tied_head_is_counted_once_as_a_matrix_that_multiplies():
    assert ledger("six_n", genome(tied=True)).training_flops_per_token == pytest.approx(
        ledger("six_n", genome(tied=False)).training_flops_per_token
    )


def test_the_embedding_counts_when_it_is_asked_for():
    with_it = ledger("six_n", genome(tied=False), embeddings=True)
    without = ledger("six_n", genome(tied=False))
    assert with_it.training_flops_per_token - without.training_flops_per_token == 6 * 11 * 8


def test_it_sees_neither_length_nor_repeats():
    assert (
        ledger("six_n", genome(), 64).training_flops_per_token
        == ledger("six_n", genome(), 4096).training_flops_per_token
    )
    recurrent = genome(repeats=4, name="recurrent")
    assert (
        ledger("six_n", recurrent).training_flops_per_token
        == ledger("six_n", genome()).training_flops_per_token
    )
    assert (
        ledger("analytic", recurrent).training_flops_per_token
        > 3 * ledger("analytic", genome()).training_flops_per_token
    )


def test_the_checks_refute_it_in_what_the_readme_says_and_nothing_else():
    failed = {outcome.rule.name for outcome in check(PARTS, "cost", "six_n", "suite").failures}
    assert failed == set(re.findall(r"`([a-z]+-[a-z]+)`", README.read_text()))
    assert failed == {"monotone-length", "monotone-size", "conditional-work"}


def test_what_is_no_estimate_stays():
    mine, analytic = ledger("six_n", genome()), ledger("analytic", genome())
    for field in (
        "parameters",
        "active_parameters",
        "state_bytes",
        "memory_bytes",
        "executed_prefill_flops_per_token",
    ):
        assert getattr(mine, field) == getattr(analytic, field)
