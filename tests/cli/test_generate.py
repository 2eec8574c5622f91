"""``crossbreed generate`` on runs that were really trained: what follows, what is shown of it, and what is refused."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from crossbreed.core.host import Host
from crossbreed.core.search.trained import load
from crossbreed.storage.repository import Repository
from tests.cli.conftest import Cli
from tests.support.passes import whole_pass
from tests.support.trained import LETTERS, SYMBOLS


def checkpoint(db: Path, key: str) -> Path:
    with Repository.open(str(db), read_only=True) as repository:
        (rung,) = repository.rungs(repository.run_by_key(key).id)
        return repository.artefacts.path / str(rung.checkpoint)


def test_text_is_gone_on_with_as_whole_passes_of_the_trained_model_would(
    cli: Cli, trained_runs: Path
) -> None:
    result = cli("generate", LETTERS, "--prompt", "the cat", "--tokens", 20, "--db", trained_runs, "--json")
    assert (result.code, result.err) == (0, "")
    found = result.json("generate")
    assert found["prompt"] == {"text": "the cat", "tokens": list(b"the cat")}
    assert found["generated"]["text"].encode() == bytes(found["generated"]["tokens"])
    assert found["words"] == [*"the cat", *(w for w in found["words"][7:])]
    with Repository.open(str(trained_runs), read_only=True) as repository:
        model = load(repository, LETTERS, Host.load(third_party=False)).model
    text = [*found["prompt"]["tokens"], *found["generated"]["tokens"]]
    h_BTD, taken = whole_pass(model, torch.tensor([text[:-1]]))
    log_TV = model.logits(h_BTD)[0].log_softmax(-1)
    assert log_TV[6:].argmax(-1).tolist() == found["generated"]["tokens"]
    assert found["generated"]["log_probabilities"] == pytest.approx(log_TV[6:].amax(-1).tolist(), abs=1e-4)
    (gate,) = found["sites"]
    assert (gate["site"], gate["kind"], gate["router"]) == ("1.0.0.gate", "gate", "entropy_gate")
    assert gate["choices"] == taken["1.0.0.gate"][0].tolist()
    assert len(gate["entropies"]) == found["read"] == 26
    assert gate["switches"] is None


def test_lanes_show_each_decision_under_its_token_without_colours(
    cli: Cli, trained_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("generate", LETTERS, "--prompt", "the cat sat on", "--tokens", 30, "--db", trained_runs)
    found = cli(*asked, "--json").json("generate")
    monkeypatch.setenv("COLUMNS", "32")
    lines = cli(*asked).out.splitlines()
    assert "\x1b" not in "".join(lines)
    lanes: dict[str, str] = {}
    for name in ("token", "new", "1.0.0.gate"):
        # Twelve columns of names; twenty tokens a line.
        lanes[name] = "".join(line[12:].ljust(20) for line in lines if line.split(" ")[0] == name)
    assert lanes["token"].rstrip() == "".join(found["words"]).rstrip()
    assert lanes["new"].rstrip() == " " * 14 + "^" * 30
    assert lanes["1.0.0.gate"].rstrip() == "".join(".#"[c] for c in found["sites"][0]["choices"])
    assert [line for line in lines if line.startswith("from ")] == ["from 0", "from 20", "from 40"]
    assert "gate: . skip, # run" in lines


def test_symbols_are_words_and_a_schedule_is_followed_and_said(cli: Cli, trained_runs: Path) -> None:
    point = "schedule:0=mamba2,-4=attention"
    asked = (
        "generate",
        SYMBOLS,
        "--prompt",
        "k0 v1 · k0",
        "--tokens",
        6,
        "--point",
        point,
        "--db",
        trained_runs,
    )
    found = cli(*asked, "--json").json("generate")
    assert found["point"] == point
    assert found["words"][:4] == ["k0", "v1", "·", "k0"]
    assert found["generated"]["text"] == " ".join(found["words"][4:])
    (mode,) = [site for site in found["sites"] if site["kind"] == "mode"]
    assert mode["choices"] == [0] * 6 + [1] * 3
    assert mode["switches"] == [{"position": 0, "choice": 0}, {"position": 6, "choice": 1}]
    assert len(found["sites"]) == 4
    out = cli(*asked).out
    assert "Mode: mamba2 from 0, attention from 6." in out
    assert "mode: 0 mamba2, 1 attention" in out
    numbered = cli("generate", SYMBOLS, "--prompt", "k0 v1 #0 k0", *asked[4:], "--json").json("generate")
    assert numbered["prompt"] == found["prompt"]


def test_draws_are_those_of_the_seed(cli: Cli, trained_runs: Path) -> None:
    def drawn(*options: object) -> list[int]:
        asked = ("generate", SYMBOLS, "--prompt", "k0 v1", "--tokens", 24, *options, "--db", trained_runs)
        return list(cli(*asked, "--json").json("generate")["generated"]["tokens"])

    warm = ("--temperature", 2.5, "--seed", 3)
    assert drawn(*warm) == drawn(*warm) != drawn("--temperature", 2.5, "--seed", 4)
    assert drawn(*warm, "--top-k", 1) == drawn()


def test_control_characters_of_a_model_do_not_reach_the_terminal(cli: Cli, trained_runs: Path) -> None:
    result = cli(
        "generate", LETTERS, "--prompt", "\x1b[31m", "--temperature", 9, "--tokens", 200, "--db", trained_runs
    )
    assert result.code == 0
    assert not {c for c in result.out if not c.isprintable()} - {"\n"}


@pytest.mark.parametrize(
    ("run", "options", "sentence"),
    [
        (SYMBOLS, ("--prompt", "k0 v9"), "word 'v9' is not in the vocabulary of task Recall; did you mean"),
        (SYMBOLS, ("--prompt", "#16"), "'#' and a token's number from 0 to 15"),
        (SYMBOLS, ("--prompt", " "), "prompt ' ' is empty; it must hold at least one token"),
        (LETTERS, ("--prompt", "\udcff"), "cannot be written as UTF-8"),
        (
            SYMBOLS,
            ("--prompt", "k0", "--point", "schedule:0=mamba3"),
            "takes mode 'mamba3'; did you mean 'mamba2'",
        ),
        (SYMBOLS, ("--prompt", "k0", "--point", "schedul:0=1"), "unknown operating point 'schedul:0=1'"),
        (SYMBOLS, ("--prompt", "k0", "--point", "schedule:0=1,-99=0"), "not inside a text of 33 tokens"),
        (
            LETTERS,
            ("--prompt", "a", "--point", "schedule:0=attention"),
            "but the architecture has no mode router",
        ),
        (LETTERS, ("--prompt", "a", "--point", "fitted:distilled"), "unknown fitted operating point"),
        (LETTERS, ("--prompt", "a", "--point", "depth:1"), "says nothing about run letters/0/0"),
        (LETTERS, ("--prompt", "a", "--point", "length:2"), "'length:2' is about evaluation rows"),
        (
            LETTERS,
            ("--prompt", "a", "--temperature", "nan"),
            "--temperature 'nan' must be at least 0",
        ),
        (LETTERS, ("--prompt", "a", "--temperature", "-1"), "--temperature '-1'"),
        (LETTERS, ("--prompt", "a", "--tokens", "0"), "--tokens '0'"),
        (LETTERS, ("--prompt", "a", "--device", "tpu"), "unknown device 'tpu'"),
        (LETTERS, ("--prompt", "a", "--dtype", "bfloat16"), "'bfloat16' needs a CUDA device"),
        ("letters/3/0", ("--prompt", "a"), "run 'letters/3/0' does not exist"),
        ("letters", ("--prompt", "a"), "'letters'"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    cli: Cli, trained_runs: Path, run: str, options: tuple[str, ...], sentence: str
) -> None:
    result = cli("generate", run, *options, "--db", trained_runs)
    assert result.code == 2
    assert sentence in result.err
    assert result.out == ""
    assert result.err.count("\n") == 1


def test_a_checkpoint_that_is_gone_or_another_models_is_a_sentence(cli: Cli, trained_runs: Path) -> None:
    asked = ("generate", LETTERS, "--prompt", "a", "--db", trained_runs)
    path = checkpoint(trained_runs, LETTERS)
    shutil.copy(checkpoint(trained_runs, SYMBOLS), path)
    changed = cli(*asked)
    assert (changed.code, "it was changed" in changed.err) == (2, True)
    with sqlite3.connect(trained_runs) as connection:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        connection.execute(
            "UPDATE rung SET sha256 = ? WHERE checkpoint LIKE ?",
            (sha256, "%letters/0/0/rung-0.safetensors"),
        )
    other = cli(*asked)
    assert other.code == 2
    assert "belongs to architecture" in other.err
    path.unlink()
    gone = cli(*asked)
    assert (gone.code, f"the checkpoint of run {LETTERS} is missing" in gone.err) == (2, True)


def test_help_imports_no_torch(tmp_path: Path) -> None:
    script = "import sys; from crossbreed.cli import run; run(['generate', '--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
