"""What a budget accepts, and what it says when it does not."""

from __future__ import annotations

from typing import Any

import pytest

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.certificate import Certificate, excess, residuals
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Ledger

SHAPE = {"tokens": 32}


def a_ledger(**values: float) -> Ledger:
    zeros = dict.fromkeys(
        (f for f in Ledger.__dataclass_fields__ if f not in ("dtype", "rates", "parts")), 1.0
    )
    return Ledger(**{**zeros, "dtype": "float32", **values})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [0.02, "2%", "0.02", " 2 % ".replace(" %", "%")])
def test_a_tolerance_is_a_share_or_a_percentage(given: Any) -> None:
    budget = Budget.read({"shape": SHAPE, "match": {"parameters": given}})
    assert budget.match["parameters"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"match": {"non_embeding_parameters": 0.02}}, "did you mean 'non_embedding_parameters'"),
        ({"cap": {"memory": 0.02}}, "unknown quantity 'memory'"),
        ({"match": {"parameters": -0.02}}, "tolerance of 'parameters' must be a number from 0 up to 1"),
        ({"match": {"parameters": "two"}}, "got 'two'"),
        ({"match": {"parameters": 2}}, "got 2"),
        ({"match": {"parameters": "nan"}}, "got 'nan'"),
        ({"match": {"parameters": True}}, "got True"),
        ({"match": {"parameters": 0.1}, "cap": {"parameters": 0.1}}, "both matched and capped"),
        ({}, "match or cap at least one quantity"),
        ({"match": {"parameters": 0.1}, "values": {"parameters": 0}}, "finite number above 0"),
        ({"match": {"parameters": 0.1}, "shape": {"tokens": 0}}, "shape.tokens"),
        ({"match": {"parameters": 0.1}, "shape": {"tokens": 8, "dtype": "float23"}}, "did you mean 'float"),
        ({"match": {"parameters": 0.1}, "capp": {}}, "unknown key 'capp'; did you mean 'cap'?"),
    ],
)
def test_a_wrong_budget_is_a_sentence(data: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Budget.read({"shape": SHAPE, **data})
    assert says in str(error.value)


def test_values_come_from_the_reference_unless_given() -> None:
    budget = Budget.read(
        {"shape": SHAPE, "match": {"parameters": 0.1, "state_bytes": 0.1}, "values": {"parameters": 50}}
    )
    filled = budget.at_reference(a_ledger(parameters=70, state_bytes=9))
    assert filled.values == {"parameters": 50, "state_bytes": 9}


def test_a_budget_without_its_reference_says_what_is_missing() -> None:
    budget = Budget.read({"shape": SHAPE, "match": {"parameters": 0.1}})
    with pytest.raises(ConfigError, match="'parameters' but has no reference value"):
        residuals(a_ledger(), budget)


def test_a_reference_without_a_quantity_cannot_be_matched_on_it() -> None:
    budget = Budget.read({"shape": SHAPE, "cap": {"state_bytes": 0.1}})
    with pytest.raises(ConfigError, match="'state_bytes' must be a finite number above 0, got 0"):
        budget.at_reference(a_ledger(state_bytes=0))


@pytest.mark.parametrize(
    ("value", "match_ok", "cap_ok"),
    [(90, False, True), (98, True, True), (102, True, True), (103, False, False)],
)
def test_residuals_are_signed_and_a_cap_binds_on_one_side(value: float, match_ok: bool, cap_ok: bool) -> None:
    for kind, ok in (("match", match_ok), ("cap", cap_ok)):
        budget = Budget.read({"shape": SHAPE, kind: {"parameters": 0.02}, "values": {"parameters": 100}})
        (residual,) = residuals(a_ledger(parameters=value), budget)
        assert residual.residual == pytest.approx((value - 100) / 100)
        assert (residual.ok, residual.kind) == (ok, kind)
        assert (excess(residual) <= 0) == ok


def test_a_certificate_survives_json() -> None:
    budget = Budget.read({"shape": SHAPE, "match": {"parameters": 0.02}, "values": {"parameters": 100}})
    found = residuals(a_ledger(parameters=101), budget)
    certificate = Certificate(feasible=True, quantities=found, dimensions={"swiglu.hidden": 3}, path="optuna")
    assert Certificate.model_validate_json(certificate.model_dump_json()) == certificate
