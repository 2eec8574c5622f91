from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, in_process

HEAVY = ("torch", "ray", "streamlit", "plotly", "optuna", "sqlalchemy", "pandas")


def test_every_builtin_kind_is_listed_with_its_source(cli: Cli) -> None:
    listing = cli("plugins", "--json").json("plugins")
    found = {(item["kind"], item["name"]): item for item in listing["plugins"]}
    expected = {
        "mixer": ["attention", "mamba2", "gated_deltanet", "multi_mixer", "swiglu", "experts"],
        "router": ["entropy_gate", "segment_random", "learned"],
        "depth": ["layered", "recurrent"],
        "cost": ["analytic"],
        "task": ["recall", "bytes"],
        "space": ["layer_hybrids"],
    }
    for kind, names in expected.items():
        for name in names:
            assert found[kind, name]["builtin"], (kind, name)
            assert found[kind, name]["identity"].startswith("crossbreed "), (kind, name)
    assert found["mixer", "attention"]["capabilities"]["axis"] == "sequence"
    assert "gate" in found["router", "entropy_gate"]["capabilities"]["sites"]
    assert listing["broken"] == []


def test_the_table_names_what_a_plugin_file_offers(cli: Cli, router_file: Path) -> None:
    result = cli("plugins", "--plugin", router_file)
    line = next(line for line in result.out.splitlines() if "every_third" in line and "router" in line)
    assert "Runs every third token." in line
    assert result.code == 0


def test_listing_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom crossbreed.cli import run\nassert run(['plugins']) == 0\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.stderr.strip() == "[]"
    assert "attention" in done.stdout


def test_stdout_of_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    result = in_process("plugins", "--json", cwd=tmp_path)
    assert result.code == 0
    assert result.err == ""
    result.json("plugins")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import numpyy", "raised ModuleNotFoundError at import (line 1)"),
        ("x = 1", "registers nothing"),
        (
            "from crossbreed import hookimpl\n@hookimpl\ndef regster_routers():\n    return []",
            "did you mean 'register_routers'?",
        ),
    ],
)
def test_a_bad_plugin_file_is_one_sentence_and_exit_2(
    cli: Cli, tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    result = cli("plugins", "--plugin", path)
    assert result.code == 2
    assert result.out == ""
    assert sentence in result.err
    assert "bad.py" in result.err
    assert "Traceback" not in result.err
    assert "Traceback" in cli("plugins", "--plugin", path, "--debug").err


def test_a_missing_plugin_file_is_named(cli: Cli) -> None:
    result = cli("plugins", "--plugin", "nowhere.py")
    assert result.code == 2
    assert "plugin file 'nowhere.py' does not exist" in result.err


def test_an_unknown_command_names_the_nearest(cli: Cli) -> None:
    result = cli("plugin")
    assert result.code == 2
    assert "plugins" in result.err
    assert result.out == ""


def test_a_fault_in_a_command_is_exit_1_with_its_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plugins: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("crossbreed.cli.plugins.registry_of", broken)
    result = cli("plugins")
    assert result.code == 1
    assert "Traceback" in result.err
    assert "ZeroDivisionError: a bug" in result.err


def test_a_reader_that_leaves_early_sees_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m crossbreed plugins --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout == "{"
    assert done.stderr == ""
