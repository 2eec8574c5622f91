from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Cli
from tests.cli.test_show import TRANSFORMER


def write(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """The reference with channel mixers that are half as wide again."""
    text = yaml.safe_dump(TRANSFORMER).replace("hidden: 64", "hidden: 96")
    (tmp_path / "wide.yaml").write_text(text)
    return tmp_path / "wide.yaml"


@pytest.fixture
def budget(tmp_path: Path) -> Path:
    data = {
        "reference": TRANSFORMER,
        "shape": {"batch": 1, "tokens": 64, "dtype": "float32"},
        "match": {"training_flops_per_token": "2%", "non_embedding_parameters": "2%"},
        "cap": {"memory_bytes": "2%"},
    }
    return write(tmp_path / "budget.yaml", data)


def test_a_genome_is_brought_to_the_budget(cli: Cli, wide: Path, budget: Path, tmp_path: Path) -> None:
    found = cli("match", wide, "--budget", budget, "--out", "matched.yaml", "--json").json("match")
    assert found["feasible"]
    assert all(abs(q["residual"]) <= 0.02 for q in found["certificate"]["quantities"] if q["kind"] == "match")
    again = cli("match", "matched.yaml", "--budget", budget, "--json").json("match")
    assert again["hash"] == found["hash"]


def test_the_certificate_is_printed_with_signed_residuals(cli: Cli, wide: Path, budget: Path) -> None:
    result = cli("match", wide, "--budget", budget)
    assert result.code == 0
    assert "Certificate at 1 x 64 tokens in float32" in result.out
    for quantity in ("training_flops_per_token", "non_embedding_parameters", "memory_bytes"):
        line = next(line for line in result.out.splitlines() if quantity in line)
        assert "%" in line
        assert "ok" in line
    assert "feasible" in result.out


def test_a_budget_nobody_can_meet_is_exit_2_with_the_quantity(cli: Cli, wide: Path, tmp_path: Path) -> None:
    data = {
        "shape": {"tokens": 64},
        "match": {"training_flops_per_token": 0.02, "non_embedding_parameters": 0.02},
        "values": {"training_flops_per_token": 1000.0, "non_embedding_parameters": 1e12},
    }
    result = cli("match", wide, "--budget", write(tmp_path / "absurd.yaml", data), "--json")
    assert result.code == 2
    found = result.json("match")
    assert not found["feasible"]
    assert any(q in found["certificate"]["reason"] for q in data["values"])
    assert "infeasible" in cli("match", wide, "--budget", tmp_path / "absurd.yaml").out


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"match": {"training_flops": "2%"}}, "unknown quantity 'training_flops'"),
        ({"match": {"parameters": "-2%"}}, "tolerance of 'parameters' must be a number from 0 up to 1"),
        ({"match": {}, "cap": {}}, "must match or cap at least one quantity"),
        ({"reference": None}, "has no reference value for it"),
        ({"shap": {}}, "unknown key 'shap'"),
    ],
)
def test_a_wrong_budget_is_one_sentence(
    cli: Cli, wide: Path, budget: Path, change: dict[str, Any], sentence: str
) -> None:
    data = {**yaml.safe_load(budget.read_text()), **change}
    result = cli("match", wide, "--budget", write(budget, data))
    assert result.code == 2
    assert sentence in result.err
    assert result.out == ""


def test_a_missing_budget_file_is_named(cli: Cli, wide: Path) -> None:
    result = cli("match", wide, "--budget", "nowhere.yaml")
    assert result.code == 2
    assert "budget file 'nowhere.yaml' does not exist." in result.err


def test_a_study_file_gives_its_budget_and_its_vocabulary(cli: Cli, tmp_path: Path) -> None:
    cli("init", "first.yaml")
    reference = yaml.safe_load((tmp_path / "first.yaml").read_text())["budget"]["reference"]
    assert "vocab" not in reference
    found = cli("match", write(tmp_path / "r.yaml", reference), "--budget", "first.yaml", "--json").json(
        "match"
    )
    assert found["feasible"]
    assert found["architecture"]["vocab"] > 8
    assert all(q["residual"] == 0 for q in found["certificate"]["quantities"])
