from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.cli.conftest import Cli
from tests.cli.studies import REFERENCE, write_study


def write_genome(path: Path, hidden: int, **changes: Any) -> Path:
    text = yaml.safe_dump({**REFERENCE, **changes}).replace("hidden: 32", f"hidden: {hidden}")
    path.write_text(text)
    return path


def test_named_genomes_are_trained_and_compared_without_a_search(cli: Cli, tmp_path: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml", search={"trials": 5})
    a, b = write_genome(tmp_path / "a.yaml", 32), write_genome(tmp_path / "b.yaml", 36)
    found = cli("compare", a, b, "--budget", study, "--seeds", 1, "--executor", "inline", "--json").json(
        "compare"
    )
    assert found["study"] == "tiny-compare"
    assert found["genomes"].keys() == {str(a), str(b)}
    by_number = {c["number"]: c for c in found["candidates"]}
    for number in found["genomes"].values():
        assert by_number[number]["state"] == "done"
        # Seed 0 chose the setting; what is reported is a fresh run.
        assert by_number[number]["seeds"] == [1]
    # a.yaml is the reference itself, so nothing else was trained.
    assert len(found["candidates"]) == 2
    score = next(d for d in found["differences"] if d["objective"] == "score")
    assert (score["seeds"], score["low"], score["better"]) == (
        [1],
        None,
        None,
    )  # one seed shows no difference
    text = cli("compare", a, b, "--budget", study, "--seeds", 1, "--executor", "inline").out
    assert f"#{found['genomes'][str(b)]} is {b}" in text
    assert "No pair shares 3 seeds: nothing can be said yet." in text


def test_a_genome_outside_the_budget_is_refused_before_training(cli: Cli, tmp_path: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml")
    wide = write_genome(tmp_path / "wide.yaml", 512)
    result = cli("compare", wide, "--budget", study, "--executor", "inline")
    assert result.code == 2
    assert f"genome '{wide}' is outside the budget: training_flops_per_token is +" in result.err
    assert "--match" in result.err
    assert not Path("crossbreed.db").exists()


def test_another_vocabulary_is_refused(cli: Cli, tmp_path: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml")
    other = write_genome(tmp_path / "other.yaml", 32, vocab=300)
    result = cli("compare", other, "--budget", study, "--executor", "inline")
    assert result.code == 2
    assert "has vocab 300, but the study's task has 16 tokens." in result.err


def test_a_budget_without_a_task_cannot_train(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "budget.yaml").write_text(yaml.safe_dump({"match": {"parameters": "2%"}}))
    result = cli("compare", write_genome(tmp_path / "a.yaml", 32), "--budget", tmp_path / "budget.yaml")
    assert result.code == 2
    assert "task is required" in result.err
