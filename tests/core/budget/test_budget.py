"""What a budget accepts, and what it says when it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.certificate import Certificate, excess, percents, residuals
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import QUANTITIES, Ledger

SHAPE = {"tokens": 32}


def a_ledger(**values: float) -> Ledger:
    zeros = dict.fromkeys(
        (f for f in Ledger.__dataclass_fields__ if f not in ("dtype", "rates", "sections", "prediction")), 1.0
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
        ({"match": {"parameters": 0.1}, "values": {"parameters": 0}}, "finite number of at least 1"),
        ({"match": {"parameters": 0.1}, "values": {"parameters": "1e-300"}}, "finite number of at least 1"),
        ({"match": {"parameters": 0.1}, "values": {"memory_bytes": 9}}, "neither matches nor caps"),
        ({"match": {"parameters": 0.1}, "free": ["d_model", "d_model=8..64"]}, "free names 'd_model' twice"),
        ({"match": ["parameters"]}, "match must map quantities to tolerances, as in 'parameters: 2%'"),
        ({"match": {"parameters": 0.1}, "values": 9}, "must map quantities to reference values"),
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
    with pytest.raises(ConfigError, match="reference has a state_bytes of 0, and nothing"):
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


@pytest.mark.parametrize(
    ("off", "tolerance", "shown"),
    [
        (0.0301, 0.02, ("+3.0%", "2.0%")),
        (0.0001, 0.0, ("+0.01%", "0.00%")),
        (-0.02004, 0.02, ("-2.004%", "2.000%")),
        (1e-30, 0.0, ("+0.000000000%", "0.000000000%")),
        (0.02, 0.02, ("+2.0%", "2.0%")),
    ],
)
def test_a_residual_outside_its_tolerance_is_never_shown_as_equal_to_it(
    off: float, tolerance: float, shown: tuple[str, str]
) -> None:
    assert percents(off, tolerance) == shown


def test_a_certificate_survives_json() -> None:
    budget = Budget.read({"shape": SHAPE, "match": {"parameters": 0.02}, "values": {"parameters": 100}})
    found = residuals(a_ledger(parameters=101), budget)
    certificate = Certificate(feasible=True, quantities=found, dimensions={"swiglu.hidden": 3}, path="optuna")
    assert Certificate.model_validate_json(certificate.model_dump_json()) == certificate


def test_state_is_that_of_one_sequence_or_of_the_whole_batch_by_name() -> None:
    """Memory and state are of one sequence at any batch, so that they compare; the batch's state has its own name."""
    ledger = a_ledger(batch=8, state_bytes=100.0)
    assert ledger.quantity("state_bytes") == 100
    assert ledger.quantity("batch_state_bytes") == 800
    assert ledger.as_dict()["batch_state_bytes"] == 800


@pytest.mark.parametrize(
    ("quantity", "given", "number"),
    [
        ("parameters", "180M", 180e6),
        ("active_parameters", "1.5B", 1.5e9),
        ("parameters", "12_345", 12_345),
        ("parameters", "2,000,000", 2e6),
        ("training_flops_per_token", "1.1 GFLOPs", 1.1e9),
        ("decode_flops_per_token", "364M", 364e6),
        ("memory_bytes", "512 MiB", 512 * 2**20),
        ("memory_bytes", "1GB", 1e9),
        ("state_bytes", "4096", 4096),
        ("state_bytes", 4096, 4096),
    ],
)
def test_values_are_numbers_or_amounts_with_a_unit(quantity: str, given: Any, number: float) -> None:
    rules = {"shape": SHAPE, "match": {quantity: 0.1}, "values": {quantity: given}}
    budget = Budget.read(rules)
    assert budget.target(quantity) == pytest.approx(number)
    assert Budget.read(budget.model_dump(mode="json")) == budget


@pytest.mark.parametrize(
    ("quantity", "given", "units"),
    [
        ("parameters", "180MB", "none, k, M, G, T, B"),
        ("memory_bytes", "2G", "none, B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"),
        ("memory_bytes", "180M parameters", "KiB"),
        ("memory_bytes", "180 Mb", "'Mb' is none of them; did you mean 'MB'?"),
        ("training_flops_per_token", "1.1GB", "GFLOPs"),
        ("parameters", "-5M", "got '-5M'"),
        ("parameters", "many", "got 'many'"),
        ("parameters", "1.2.3M", "got '1.2.3M'"),
        ("parameters", "1,5M", "got '1,5M'"),
        ("parameters", "nan", "got 'nan'"),
        ("parameters", float("inf"), "got inf"),
        ("parameters", True, "got True"),
        ("parameters", [1], "got [1]"),
    ],
)
def test_a_value_in_another_unit_is_refused_with_the_units_it_takes(
    quantity: str, given: Any, units: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Budget.read({"shape": SHAPE, "match": {quantity: 0.1}, "values": {quantity: given}})
    assert f"reference value of '{quantity}' must be a finite number of at least 1" in str(error.value)
    assert units in str(error.value)


def test_the_documented_budget_is_one() -> None:
    text = (Path(__file__).parents[3] / "docs" / "budgets.md").read_text()
    shown = yaml.safe_load(text.split("```yaml")[1].split("```")[0])
    shown.pop("reference")
    budget = Budget.read(shown)
    assert budget.values == {"memory_bytes": 512 * 2**20}
    assert set(budget.free) == {"d_model", "depth"}
    assert budget.free["d_model"] is not None
    assert budget.free["d_model"].step == 64


def test_quantities_and_their_documentation_are_the_same_set() -> None:
    text = (Path(__file__).parents[3] / "docs" / "budgets.md").read_text()
    assert [q for q in QUANTITIES if f"`{q}`" not in text] == []
