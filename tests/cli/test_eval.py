"""``crossbreed eval`` on runs that were really trained: the stored score again, longer texts, schedules, and batch sizes."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.lab import evaluate as evaluating
from crossbreed.core.lab.evaluate import evaluate
from crossbreed.core.search import evaluated
from tests.cli.conftest import Cli
from tests.support.trained import LETTERS, SYMBOLS

HARNESS = Path(__file__).parents[1] / "integrations" / "harness_tasks"


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Task files in the folder that commands run in, and no way to the network."""
    shutil.copytree(HARNESS, tmp_path / "harness_tasks")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return "harness_tasks/sat_choices.yaml,harness_tasks/sat_texts.yaml"


def test_a_run_scores_what_its_search_stored_in_batches_of_any_size(cli: Cli, trained_runs: Path) -> None:
    asked = ("eval", SYMBOLS, "--batch", 1, "--batch", 8, "--batch", 32, "--db", trained_runs)
    result = cli(*asked, "--json")
    assert (result.code, result.err) == (0, "")
    found = result.json("eval")
    (own,) = found["own"]
    assert own["stored"] == own["score"] == own["metrics"]["accuracy"]
    assert own["by_batch"] == dict.fromkeys(("1", "8", "32"), own["score"])
    assert own["spread"] <= found["tolerance"] == own["stored_tolerance"] == 1e-4
    assert (own["rows"], own["tokens"], own["times"], own["within"]) == (32, 12, 1, True)
    assert set(own["rates"]) == {"mode", "1.0.0.gate", "1.0.1.gate", "1.0.2.gate"}
    out = " ".join(cli(*asked).out.split())
    assert "Batches of 1, 8, 32; with any size a score is the same within 0.0001" in out
    assert "spread" in out
    assert "spread" not in cli("eval", SYMBOLS, "--db", trained_runs).out


def test_longer_texts_and_schedules_are_judged_beside_each_other(cli: Cli, trained_runs: Path) -> None:
    schedule = "schedule:0=mamba2,-4=attention"
    found = cli(
        *("eval", SYMBOLS, "--length", 1, "--length", 2, "--point", "own", "--point", schedule),
        *("--db", trained_runs, "--json"),
    ).json("eval")
    seen = {(each["point"], each["tokens"]): each for each in found["own"]}
    assert set(seen) == {(point, tokens) for point in ("own", schedule) for tokens in (12, 24)}
    assert seen[schedule, 24]["rates"]["mode"] == pytest.approx([20 / 24, 4 / 24])
    assert seen[schedule, 12]["rates"]["mode"] == pytest.approx([8 / 12, 4 / 12])
    assert [each["stored"] is None for each in found["own"]] == [False, True, True, True]
    (point,) = cli("eval", SYMBOLS, "--point", "length:2", "--db", trained_runs, "--json").json("eval")["own"]
    assert {**point, "point": "own"} == seen["own", 24]


def test_a_score_that_moves_with_the_batch_is_told_and_exits_with_1(
    cli: Cli, trained_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaking(model: Any, task: Any, size: int, **settings: Any) -> evaluating.Evaluation:
        found = evaluate(model, task, size, **settings)
        metrics = {name: value + (3e-4 if size > 4 else 0) for name, value in found.metrics.items()}
        return replace(found, metrics=metrics, score=metrics["accuracy"])

    monkeypatch.setattr(evaluated, "evaluate", leaking)
    result = cli("eval", LETTERS, "--batch", 2, "--batch", 8, "--db", trained_runs, "--json")
    assert result.code == 1
    assert (
        "1 scores move with the batch size by more than 0.0001 of themselves, at most by 0.0003" in result.err
    )
    (own,) = result.json("eval")["own"]
    assert not own["within"]


def test_tasks_of_the_harness_are_asked_at_every_point_in_every_batch(
    cli: Cli, trained_runs: Path, tasks: str
) -> None:
    asked = (
        "eval",
        LETTERS,
        "--lm-eval",
        tasks,
        "--point",
        "own",
        "--point",
        "forced:0",
        "--db",
        trained_runs,
    )
    result = cli(*asked, "--batch", 1, "--batch", 8, "--json")
    assert (result.code, result.err) == (0, "")
    found = result.json("eval")
    assert found["own"] == []
    own, shut = found["lm_eval"]
    assert (own["point"], shut["point"], own["max_length"]) == ("own", "forced:0", 32)
    assert (own["requests"], own["truncated"]) == (18, 3)
    values = {(s["task"], s["metric"]): s["value"] for s in own["scores"]}
    assert set(values) == {
        ("sat_choices", "acc"),
        ("sat_texts", "bits_per_byte"),
        ("sat_texts", "byte_perplexity"),
    }
    shut_values = {(s["task"], s["metric"]): s["value"] for s in shut["scores"]}
    assert values["sat_texts", "bits_per_byte"] != shut_values["sat_texts", "bits_per_byte"]
    assert all(s["within"] and set(s["by_batch"]) == {"1", "8"} for s in own["scores"])
    out = " ".join(cli(*asked, "--limit", 2, "--max-length", 64).out.split())
    assert "letters/0/0 at forced:0, texts of 64 tokens at most" in out
    assert "0 of 5 contexts were cut from the left to fit." in out


@pytest.mark.parametrize(
    ("run", "options", "sentence"),
    [
        (SYMBOLS, ("--point", "schedule:0=mamba3"), "takes mode 'mamba3'; did you mean 'mamba2'"),
        (SYMBOLS, ("--point", "schedule:0=0,-20=1"), "'-20', which is not inside a text of 12 tokens"),
        (SYMBOLS, ("--point", "nothing"), "unknown operating point 'nothing'"),
        (SYMBOLS, ("--point", "length:2", "--length", "2"), "and so does --length; give one of them"),
        (LETTERS, ("--length", "1000"), "too few for length 32000"),
        (
            LETTERS,
            ("--shots", "3"),
            "--shots is about tasks of lm-evaluation-harness; name them with --lm-eval",
        ),
        (LETTERS, ("--max-length", "3"), "--max-length is about tasks of lm-evaluation-harness"),
        (LETTERS, ("--lm-eval", ", "), "--lm-eval ', ' names no task"),
        (LETTERS, ("--lm-eval", "x.yaml", "--length", "2"), "--length is about the run's own task"),
        (
            LETTERS,
            ("--lm-eval", "x.yaml", "--point", "length:2"),
            "operating point 'length:2' is about the run's own",
        ),
        (LETTERS, ("--lm-eval", "x.yaml"), "unknown lm-eval task 'x.yaml'"),
        (SYMBOLS, ("--lm-eval", "harness_tasks/sat_texts.yaml"), "task Recall is made of symbols"),
        (LETTERS, ("--batch", "0"), "--batch '0'"),
        (LETTERS, ("--device", "cuda:9"), "device 'cuda:9' is not there"),
        ("letters/0/9", (), "unknown run 'letters/0/9'"),
    ],
)
@pytest.mark.usefixtures("tasks")
def test_what_cannot_be_judged_is_a_sentence(
    cli: Cli, trained_runs: Path, run: str, options: tuple[str, ...], sentence: str
) -> None:
    result = cli("eval", run, *options, "--db", trained_runs)
    assert (result.code, result.out) == (2, "")
    assert sentence in result.err


def test_without_the_package_the_extra_is_named(
    cli: Cli, trained_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "crossbreed.integrations.lm_harness", raising=False)
    result = cli("eval", LETTERS, "--lm-eval", "x.yaml", "--db", trained_runs)
    assert result.code == 2
    assert "this needs the package 'lm_eval'" in result.err
    assert "pip install 'crossbreed[eval]'" in result.err
    assert cli("eval", LETTERS, "--db", trained_runs).code == 0
