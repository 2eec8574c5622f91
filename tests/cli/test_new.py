"""``crossbreed new``: every starting point works as it is written, as a file and as a distribution."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from crossbreed.cli.new import KINDS
from tests.cli.conftest import Cli
from tests.cli.studies import write_study
from tests.support.elsewhere import Elsewhere

NAMES = {
    "router": "sharp_gate",
    "mixer": "tone_mixer",
    "depth-policy": "swing",
    "cost-model": "padded_cost",
    "task": "echo_task",
    "search-space": "plain_stack",
}


@pytest.fixture
def plugin_files(cli: Cli, tmp_path: Path) -> list[Path]:
    """A plugin file of every kind, each with its test beside it."""
    found = []
    for kind, name in NAMES.items():
        result = cli("new", kind, name, "--out", tmp_path / "made")
        assert result.code == 0, result.err
        written = [Path(line) for line in result.out.splitlines()]
        assert [path.name for path in written] == [f"{name}.py", f"test_{name}.py"]
        assert f"crossbreed check {written[0]}" in result.err
        found.append(written[0])
    return found


def test_there_is_a_starting_point_of_every_kind() -> None:
    assert NAMES.keys() == KINDS.keys()
    templates = files("crossbreed.cli").joinpath("templates")
    for kind in KINDS:
        stem = kind.replace("-", "_")
        assert templates.joinpath(f"{stem}.py").is_file()
        assert templates.joinpath(f"test_{stem}.py").is_file()


def test_plugin_files_are_listed_under_their_names(cli: Cli, plugin_files: list[Path]) -> None:
    options = [option for file in plugin_files for option in ("--plugin", file)]
    listed = cli("plugins", *options, "--json").json("plugins")
    mine = {item["name"]: item["kind"] for item in listed["plugins"] if not item["builtin"]}
    assert mine == {NAMES[kind]: listed_as for kind, listed_as in KINDS.items()}
    for file in plugin_files:
        assert not re.search(r"\b(my_|My[A-Z])|templates", file.read_text())


def test_plugin_files_build_a_genome_and_a_study(cli: Cli, plugin_files: list[Path], tmp_path: Path) -> None:
    options = [option for file in plugin_files for option in ("--plugin", file)]
    block: dict[str, Any] = {
        "sublayers": [{"mixer": "tone_mixer", "params": {"width": 8}}],
        "gate": {"name": "sharp_gate", "params": {}},
    }
    stage = {"depth": {"name": "swing", "repeats": 2}, "blocks": [block]}
    genome = tmp_path / "genome.yaml"
    genome.write_text(yaml.safe_dump({"vocab": 16, "d_model": 16, "stages": [stage]}))
    shown = cli("show", genome, *options, "--json").json("show")
    assert {part["name"] for part in shown["ledger"]["parts"]} >= {"tone_mixer", "sharp_gate"}
    # A space that leaves sizes at their defaults meets budgets of models about as large.
    usual = {
        "d_model": 32,
        "stages": [{"blocks": [{"sublayers": [{"mixer": "attention"}, {"mixer": "swiglu"}]}]}],
    }
    study = write_study(
        tmp_path / "study.yaml",
        task={"name": "echo_task", "params": {"vocab": 16, "length": 12, "lag": 2, "eval_items": 32}},
        space={
            "name": "plain_stack",
            "mixers": ["attention", "tone_mixer", "swiglu"],
            "params": {"layers": 1},
        },
        budget={
            "reference": usual,
            "match": {"training_flops_per_token": "50%"},
            "cap": {"memory_bytes": "90%"},
        },
    )
    planned = cli("search", study, *options, "--plan", "--json").json("plan")
    assert {"attention", "tone_mixer"} <= {row["family"] for row in planned["candidates"] if row["feasible"]}


def test_the_tests_that_are_written_pass(plugin_files: list[Path]) -> None:
    command = [sys.executable, "-m", "pytest", "--import-mode=importlib", "-p", "no:cacheprovider", "-q", "."]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    folder = plugin_files[0].parent
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_packages_build_install_and_are_tested_as_installed(cli: Cli, tmp_path: Path) -> None:
    made = tmp_path / "made"
    for kind, name in NAMES.items():
        result = cli("new", kind, name, "--package", "--out", made)
        assert result.code == 0, result.err
        assert f"pip install -e '{made / f'crossbreed-{name}'.replace('_', '-')}[test]'" in result.err
        for path in map(Path, result.out.splitlines()):
            assert not re.search(r"\b(my_|My[A-Z])|templates|\$", path.read_text().replace("$ ", "")), path
    elsewhere = Elsewhere(tmp_path)
    elsewhere.install(sorted(made.iterdir()))
    mine = {name: item for name, item in elsewhere.listing().items() if not item["builtin"]}
    assert {name: item["distribution"] for name, item in mine.items()} == {
        name: f"crossbreed-{name.replace('_', '-')}" for name in NAMES.values()
    }
    code = "import sys; from crossbreed import Host; Host.load(); print('torch' in sys.modules)"
    assert elsewhere.output("-c", code).strip() == "False"
    # Their tests are those of the files but for how the plugin is found.
    for kind, name in NAMES.items():
        test = (made / f"crossbreed-{name.replace('_', '-')}" / "tests" / f"test_{name}.py").read_text()
        assert "FILES = ()" in test, kind
    one = made / "crossbreed-tone-mixer" / "tests"
    elsewhere.test([one])


def test_the_two_forms_of_the_mixer_are_one_class() -> None:
    templates = files("crossbreed.cli").joinpath("templates")

    def named(path: str) -> dict[str, str]:
        tree = ast.parse(templates.joinpath(path).read_text())
        return {
            node.name: ast.dump(node)
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }

    file, offer, layer = (
        named("mixer.py"),
        named("mixer_package/__init__.py"),
        named("mixer_package/layer.py"),
    )
    hook = "register_mixers"
    assert {**offer, **layer}.keys() == file.keys()
    assert {k: v for k, v in {**offer, **layer}.items() if k != hook} == {
        k: v for k, v in file.items() if k != hook
    }


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("router", "my-router", "cannot be a plugin's name; it must begin with a letter"),
        ("router", "my-router", "such as 'my_router'"),
        ("router", "3gates", "cannot be a plugin's name"),
        ("router", "class", "be no word of Python"),
        ("router", "Gate", "such as 'gate'"),
        ("router", "g" * 61, "no longer than 60"),
        ("router", "../gate", "cannot be a plugin's name"),
        ("router", "entropy_gate", "router 'entropy_gate' is offered by crossbreed"),
        ("task", "recall", "task 'recall' is offered by crossbreed"),
        ("mixer", "json", "'json' is the name of an installed module"),
        ("mixer", "torch", "'torch' is the name of an installed module"),
    ],
)
def test_names_that_cannot_be_are_refused_and_nothing_is_written(
    cli: Cli, tmp_path: Path, kind: str, name: str, sentence: str
) -> None:
    result = cli("new", kind, name, "--out", tmp_path / "made")
    assert result.code == 2
    assert sentence in result.err
    assert not (tmp_path / "made").exists()


def test_a_file_that_exists_is_never_replaced(cli: Cli, tmp_path: Path) -> None:
    test = tmp_path / "test_sharp_gate.py"
    test.write_text("mine")
    result = cli("new", "router", "sharp_gate")
    assert result.code == 2
    assert "'test_sharp_gate.py' exists" in result.err
    assert test.read_text() == "mine"
    assert not (tmp_path / "sharp_gate.py").exists()
    assert cli("new", "router", "sharp_gate", "--package").code == 0
    assert cli("new", "router", "sharp_gate", "--package").code == 2


def test_a_package_is_made_of_the_plugin_file_that_is_there_and_of_its_test(cli: Cli, tmp_path: Path) -> None:
    assert cli("new", "router", "sharp_gate").code == 0
    file, test = tmp_path / "sharp_gate.py", tmp_path / "test_sharp_gate.py"
    file.write_text(file.read_text().replace("default=0.5", "default=0.7"))
    test.write_text(test.read_text() + "\n\ndef test_of_my_own() -> None:\n    pass\n")
    result = cli("new", "router", "sharp_gate", "--package", "--out", "plugins")
    assert result.code == 0, result.err
    assert "The plugin is that of sharp_gate.py, with its test" in result.err
    assert "imports torch" not in result.err
    made = tmp_path / "plugins/crossbreed-sharp-gate"
    assert (made / "src/sharp_gate/__init__.py").read_text() == file.read_text()
    tested = (made / "tests/test_sharp_gate.py").read_text()
    assert "def test_of_my_own" in tested
    assert "FILES = ()" in tested
    # From a file elsewhere, whose class has weights; a file that offers something else is refused.
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text("import torch\n" + file.read_text().replace("sharp_gate", "warm_gate"))
    result = cli("new", "router", "warm_gate", "--package", "--from", elsewhere)
    assert result.code == 0, result.err
    assert "with a test that is written anew" in result.err
    assert 'factory="warm_gate.MODULE:CLASS"' in result.err
    refused = cli("new", "router", "cold_gate", "--package", "--from", elsewhere)
    assert refused.code == 2
    assert "offers no plugin called 'cold_gate'" in refused.err
    assert cli("new", "router", "cold_gate", "--from", elsewhere).code == 2


def test_a_place_that_cannot_be_written_is_a_sentence(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = cli("new", "router", "sharp_gate", "--out", tmp_path / "file")
    assert result.code == 2
    assert "cannot be written" in result.err


def test_an_unknown_kind_is_bad_input(cli: Cli) -> None:
    result = cli("new", "layer", "mine")
    assert result.code == 2
    assert "search-space" in result.err


def test_written_forms_are_complete(cli: Cli, tmp_path: Path) -> None:
    assert cli("new", "mixer", "tone_mixer", "--package").code == 0
    folder = tmp_path / "crossbreed-tone-mixer"
    project = (folder / "pyproject.toml").read_text()
    assert 'name = "crossbreed-tone-mixer"' in project
    assert 'tone_mixer = "tone_mixer"' in project
    assert json.dumps("tone_mixer.layer:ToneMixer") in (folder / "src/tone_mixer/__init__.py").read_text()
    assert "crossbreed check tone_mixer" in (folder / "README.md").read_text()
