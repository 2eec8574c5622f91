"""my_cost_model by every rule of its kind, and beside the analytic one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossbreed import Architecture, Host, Ledger, Shape
from crossbreed.core.conformance.testing import CostModelConformance

FILES = (str(Path(__file__).with_name("my_cost_model.py")),)
PARTS = Host.load(FILES)


class TestRules(CostModelConformance):
    plugin = "my_cost_model"
    files = FILES


def ledger(name: str, tokens: int = 64, **settings: Any) -> Ledger:
    block = {"sublayers": [{"mixer": "attention", "params": {"heads": 2, "head_size": 4}}]}
    genome = Architecture.model_validate({"vocab": 11, "d_model": 8, "stages": [{"blocks": [block]}]})
    model = PARTS.factory("cost", name)(PARTS.config("cost", name, settings), PARTS)
    found: Ledger = model.estimate(PARTS.canonical(genome), Shape(tokens=tokens))
    return found


def test_the_peak_carries_the_reserve_and_all_else_is_the_analytic_ledger() -> None:
    mine, analytic = ledger("my_cost_model", reserve=0.5), ledger("analytic")
    assert mine.training_peak_bytes == pytest.approx(1.5 * analytic.training_peak_bytes)
    assert mine.training_flops_per_token == analytic.training_flops_per_token
    assert ledger("my_cost_model", reserve=0.0) == analytic


def test_a_longer_context_takes_more_memory() -> None:
    assert ledger("my_cost_model", 128).training_peak_bytes > ledger("my_cost_model", 64).training_peak_bytes
