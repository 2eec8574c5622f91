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
    assert "training_flops_per_token: algorithmic FLOPs per token, forward + backward" in " ".join(
        result.out.split()
    )
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


def test_what_is_freed_and_which_solver_is_printed_with_the_certificate(
    cli: Cli, wide: Path, budget: Path
) -> None:
    found = cli(
        "match", wide, "--budget", budget, "--free", "d_model=24..64:8", "--free", "depth", "--solver", "descent", "--json"
    ).json("match")  # fmt: skip
    assert found["feasible"]
    assert {"d_model", "depth", "swiglu.hidden"} <= found["certificate"]["dimensions"].keys()
    assert found["certificate"]["path"] == "coordinate_descent"
    assert "found by coordinate descent" in cli("match", wide, "--budget", budget, "--solver", "descent").out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--free", "d_modle"], "unknown free dimension 'd_modle'; did you mean 'd_model'?"),
        (["--free", "mamba2.state_size"], "unknown free dimension of this architecture 'mamba2.state_size'"),
        (["--free", "d_model=9..3"], "a span is LOW..HIGH or LOW..HIGH:STEP"),
        (["--free", "d_model=1..7"], "'d_model' has no legal value in its bounds 1..7"),
        (["--free", "d_model=8..4096", "--solver", "enumeration"], "tries every point of the grid"),
        (["--solver", "newton"], "newton"),
        (["--all"], "one GENOME or FAMILY, or --all"),
        (["--space", "layer_hybrid"], "unknown search space 'layer_hybrid'; did you mean 'layer_hybrids'?"),
    ],
)
def test_what_cannot_be_freed_or_solved_is_one_sentence(
    cli: Cli, wide: Path, budget: Path, arguments: list[str], sentence: str
) -> None:
    result = cli("match", wide if "--space" not in arguments else "mamba2", "--budget", budget, *arguments)
    assert result.code == 2
    assert sentence in result.err
    assert result.out == ""


def test_a_budget_file_frees_dimensions_and_takes_units(cli: Cli, wide: Path, budget: Path) -> None:
    data = yaml.safe_load(budget.read_text())
    del data["reference"]
    values = {
        "training_flops_per_token": "79k",
        "non_embedding_parameters": "0.0123M",
        "memory_bytes": "80 KiB",
    }
    given = write(budget, {**data, "values": values, "free": ["d_model=16..64", "mamba2.heads"]})
    result = cli("match", wide, "--budget", given, "--json")
    found = result.json("match")["certificate"]
    assert "d_model" in found["dimensions"]
    targets = {q["quantity"]: q["target"] for q in found["quantities"]}
    assert targets == {
        "training_flops_per_token": 79_000,
        "non_embedding_parameters": 12_300,
        "memory_bytes": 80 * 1024,
    }


def test_a_total_given_for_a_cost_per_token_is_said_to_be_one(cli: Cli, wide: Path, budget: Path) -> None:
    """64 tokens of the reference's cost, for a budget of one token's."""
    quantities = cli("match", wide, "--budget", budget, "--json").json("match")["certificate"]["quantities"]
    (right,) = (q["target"] for q in quantities if q["quantity"] == "training_flops_per_token")
    data = {
        "shape": {"tokens": 64},
        "match": {"training_flops_per_token": "2%"},
        "values": {"training_flops_per_token": 64 * right},
    }
    result = cli("match", wide, "--budget", write(budget, data), "--json")
    assert result.code == 2
    reason = result.json("match")["certificate"]["reason"]
    assert "budgets give training_flops_per_token as algorithmic FLOPs per token" in reason
    assert "a total over the 64 tokens of one sequence must be divided by them" in reason


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"values": {"memory_bytes": 1000}},
            "the budget's reference is itself outside the budget: memory_bytes is +",
        ),
        ({"values": {"memory_bytes": "1M"}}, "units it takes: none, B, kB, MB"),
        ({"free": ["widht"]}, "unknown free dimension 'widht'"),
        ({"reference": {**TRANSFORMER, "mode_router": {"name": "learned"}}}, "has nothing to choose"),
    ],
)
def test_a_reference_outside_its_own_budget_or_illegal_is_refused(
    cli: Cli, wide: Path, budget: Path, change: dict[str, Any], sentence: str
) -> None:
    data = {**yaml.safe_load(budget.read_text()), **change}
    result = cli("match", wide, "--budget", write(budget, data))
    assert result.code == 2
    assert sentence in result.err


def test_a_budget_file_without_its_shape_says_what_it_needs(cli: Cli, wide: Path, budget: Path) -> None:
    data = {k: v for k, v in yaml.safe_load(budget.read_text()).items() if k != "shape"}
    result = cli("match", wide, "--budget", write(budget, data))
    assert result.code == 2
    assert "must say at which shape its quantities are taken, as in 'shape: {tokens: 1024}'" in result.err


def test_a_family_is_matched_by_its_name(cli: Cli, budget: Path) -> None:
    found = cli("match", "mamba2", "--budget", budget, "--space", "layer_hybrids", "--json").json("match")
    mixers = [
        s["mixer"]
        for stage in found["architecture"]["stages"]
        for b in stage["blocks"]
        for s in b["sublayers"]
    ]
    assert set(mixers) == {"mamba2", "swiglu"}
    assert found["feasible"]
    missing = cli("match", "mamba3", "--budget", budget, "--space", "layer_hybrids")
    assert missing.code == 2
    assert "no family of the search space either; did you mean 'mamba2'?" in missing.err
    nowhere = cli("match", "--all", "--budget", budget)
    assert nowhere.code == 2
    assert "give a study file, or --space with one of: " in nowhere.err
    assert "layer_hybrids" in nowhere.err


def test_all_families_of_a_study_are_matched_at_once(cli: Cli, tmp_path: Path) -> None:
    cli("init", "first.yaml")
    data = yaml.safe_load((tmp_path / "first.yaml").read_text())
    data["space"] |= {"mixers": ["attention", "mamba2", "swiglu"], "routers": [], "depth": "all"}
    study = write(tmp_path / "first.yaml", data)
    found = cli("match", "--all", "--budget", study, "--json").json("match_all")
    assert found["feasible"]
    by_name = {row["family"]: row for row in found["families"]}
    assert {"mamba2", "mamba2+attention", "attention"} <= by_name.keys()
    assert by_name["mamba2"]["certificate"]["feasible"]
    stuck = by_name["recurrent attention"]
    assert not stuck["feasible"]
    assert "cannot rise" in stuck["reason"] or "cannot fall" in stuck["reason"]
    text = cli("match", "--all", "--budget", study)
    assert text.code == 0
    assert all(family in text.out for family in by_name)
    assert "FLOPs are algorithmic and per token" in text.out
    data["budget"] |= {"values": {"training_flops_per_token": 1e15}}
    assert cli("match", "--all", "--budget", write(study, data)).code == 2


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
