"""Code runs where a command names it or where it is installed: a database or a study file never brings any."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from crossbreed.storage.repository import Repository
from tests.cli.conftest import ROUTER, Cli
from tests.cli.studies import TINY, write_study


@pytest.fixture
def marked(tmp_path: Path) -> tuple[Path, Path]:
    """A plugin file that leaves a trace whenever its code runs, and the trace."""
    trace = tmp_path / "code-ran"
    plugin = tmp_path / "every_third.py"
    plugin.write_text(f"from pathlib import Path\nPath({str(trace)!r}).touch()\n{ROUTER}")
    return plugin, trace


def test_what_a_database_keeps_of_a_plugin_is_never_run(
    cli: Cli, tmp_path: Path, marked: tuple[Path, Path]
) -> None:
    plugin, trace = marked
    study = write_study(tmp_path / "study.yaml", space={"routers": "all"})
    searched = cli("search", study, "--plugin", plugin, "--executor", "inline")
    assert searched.code == 0, searched.err
    assert trace.exists()
    trace.unlink()
    with Repository.open("./crossbreed.db", read_only=True) as repository:
        (kept,) = repository.plugin_files(repository.open_study("tiny").id)
    assert kept.text == plugin.read_text()

    for command in (
        ["plugins"],
        ["study", "list"],
        ["study", "show", "tiny"],
        ["front", "tiny", "--all"],
        ["doctor"],
    ):
        assert cli(*command).code == 0, command
    # What needs the plugin asks for it, whether or not its file is still where it was.
    for command in (["search", study], ["routers", "tiny/0/0"], ["fit-router", "tiny/0/0"]):
        refused = cli(*command)
        assert refused.code == 2, command
    assert f"--plugin {plugin}" in cli("search", study).err
    assert not trace.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"space": {**TINY["space"], "routers": ["{plugin}"]}},
        {"space": {**TINY["space"], "name": "every_third:Space"}},
        {"task": {"name": "{plugin}", "params": {}}},
        {"plugins": ["{plugin}"]},
    ],
    ids=["a path as a router", "a factory as a space", "a path as a task", "a key of its own"],
)
def test_a_study_file_names_plugins_and_brings_none(
    cli: Cli, tmp_path: Path, marked: tuple[Path, Path], change: dict[str, object]
) -> None:
    plugin, trace = marked
    text = yaml.safe_dump({**TINY, **change}).replace("{plugin}", str(plugin))
    study = tmp_path / "study.yaml"
    study.write_text(text)
    assert cli("search", study, "--plan").code == 2
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["study", "genome"])
def test_a_tag_in_a_file_makes_no_object(cli: Cli, tmp_path: Path, kind: str) -> None:
    trace = tmp_path / "code-ran"
    file = tmp_path / "file.yaml"
    file.write_text(
        f"name: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{trace}']]\n"
    )
    result = cli("search", file, "--plan") if kind == "study" else cli("show", file)
    assert result.code == 2
    assert "not valid YAML" in result.err
    assert not trace.exists()
