"""``crossbreed export-model``: the files it writes and the card beside them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from crossbreed.core.genome import digest, from_yaml
from crossbreed.core.host import Host
from crossbreed.plugins.tasks import EXAMPLE
from tests.cli.conftest import Cli
from tests.cli.studies import write_study
from tests.support.trained import AMOR, LETTERS, SYMBOLS


def test_files_card_and_record_agree_with_what_is_stored(
    cli: Cli, trained_runs: Path, tmp_path: Path
) -> None:
    result = cli("export-model", LETTERS, tmp_path / "out", "--db", trained_runs, "--json")
    assert (result.code, result.err) == (0, "")
    found = result.json("export_model")
    folder = Path(found["folder"])
    assert sorted(found["files"]) == sorted(path.name for path in folder.iterdir())
    for name, sha256 in found["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256
    record = found["record"]
    assert json.loads((folder / "crossbreed.json").read_text()) == record
    architecture = Host.load().canonical(from_yaml((folder / "genome.yaml").read_text()))
    shown = cli("show", "letters/0", "--db", trained_runs, "--json").json("show")
    assert digest(architecture) == record["genome"] == shown["hash"]
    assert record["parameters"] == shown["ledger"]["parameters"]
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert len(list(file.keys())) == found["tensors"]
    front = cli("front", "letters", "--all", "--db", trained_runs, "--json").json("front")
    (own,) = [r for r in record["results"] if r["point"] == "own"]
    assert own["score"] in [s["score"] for s in record["seeds"]]
    assert front["candidates"][0]["hash"] == record["genome"]
    card = (folder / "README.md").read_text()
    for words in (
        f"# {LETTERS}",
        "| nominal | memory_bytes |",
        "| realised | memory_bytes |",
        f"| own | {own['score']:.4g} |",
        "decode_tokens_per_s",
        record["checkpoint"]["sha256"],
        record["task"]["evaluation"],
        "a token is a byte of UTF-8",
        "router:entropy_gate of crossbreed",
    ):
        assert words in card, words


def test_the_card_of_symbols_says_token_ids(cli: Cli, trained_runs: Path, tmp_path: Path) -> None:
    result = cli("export-model", SYMBOLS, tmp_path / "out", "--db", trained_runs)
    assert result.code == 0
    assert "parameters, genome" in result.out
    assert "token ids of the task, from 0 to 15" in (tmp_path / "out" / "README.md").read_text()


def test_the_snippet_of_the_card_runs(cli: Cli, trained_runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    cli("export-model", LETTERS, folder, "--db", trained_runs)
    card = (folder / "README.md").read_text()
    snippet = card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(folder))
    done = subprocess.run([sys.executable, "-c", snippet], cwd=Path.cwd(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the ")


def test_a_model_of_text_takes_its_tokenizer_along_and_says_what_the_run_says(
    cli: Cli, tmp_path: Path
) -> None:
    tokenizer = EXAMPLE / "tokenizer.json"
    task = {"path": str(EXAMPLE / "fables.jsonl"), "tokenizer": str(tokenizer), "length": 32}
    file = write_study(
        tmp_path / "fables.yaml",
        name="fables",
        task={"name": "text", "params": {**task, "eval_fraction": 0.25}},
        budget={"reference": AMOR, "match": {}, "cap": {"memory_bytes": "90%"}},
        objectives={"score": "min", "decode_tokens_per_s": "max"},
        train={"tokens": 12_000, "batch": 8, "lr": 0.02},
        search={"trials": 0, "forced_rates": [], "analytics": False},
    )
    db, folder = tmp_path / "fables.db", tmp_path / "out"
    assert cli("search", file, "--executor", "inline", "--device", "cpu", "--db", db).code == 0
    (own,) = cli("eval", "fables/0/0", "--db", db, "--json").json("eval")["own"]
    assert own["stored"] == pytest.approx(own["score"], abs=1e-4)
    asked = ("generate", "fables/0/0", "--prompt", "the ", "--tokens", 40)
    said = cli(*asked, "--db", db, "--json").json("generate")
    made = cli("export-model", "fables/0/0", folder, "--db", db, "--json").json("export_model")
    assert set(made["files"]) >= {"tokenizer.json", "tokenizer_config.json"}
    assert (folder / "tokenizer.json").read_bytes() == tokenizer.read_bytes()
    card = (folder / "README.md").read_text()
    snippet = card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(folder))
    done = subprocess.run([sys.executable, "-c", snippet], cwd=Path.cwd(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Without the start of the text, which the task shows as a mark.
    assert done.stdout == said["prompt"]["text"][1:] + said["generated"]["text"] + "\n"


@pytest.mark.parametrize(
    ("point", "sentence"),
    [
        ("schedule:0=mamba2,-4=attention", "'-4' depends on the text's length"),
        ("schedule:0=mamba2,50%=attention", "'50%' depends on the text's length"),
        ("forced:0.4", "it is a way to judge a model, and no model"),
        ("length:2", "it is a way to judge a model, and no model"),
        ("schedule:0=mamba3", "did you mean 'mamba2'"),
        ("depth:9", "says nothing about run symbols/0/0"),
    ],
)
def test_a_point_that_is_no_model_is_a_sentence(
    cli: Cli, trained_runs: Path, tmp_path: Path, point: str, sentence: str
) -> None:
    result = cli("export-model", SYMBOLS, tmp_path / "out", "--point", point, "--db", trained_runs)
    assert (result.code, result.out) == (2, "")
    assert sentence in result.err
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(cli: Cli, trained_runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    result = cli("export-model", LETTERS, folder, "--db", trained_runs)
    assert (result.code, "holds README.md already" in result.err) == (2, True)
    assert [path.name for path in folder.iterdir()] == ["README.md"]
    assert (folder / "README.md").read_text() == "mine"
    file = tmp_path / "file"
    file.write_text("")
    assert cli("export-model", LETTERS, file / "out", "--db", trained_runs).code == 2


def test_exporting_needs_no_transformers(trained_runs: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from crossbreed.cli import run; "
        f"code = run(['export-model', {LETTERS!r}, {str(tmp_path / 'out')!r}, '--db', {str(trained_runs)!r}]); "
        "assert code == 0; assert 'transformers' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
