from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_the_tasks_are_listed(cli: Cli) -> None:
    names = [item["name"] for item in cli("tasks", "list", "--json").json("tasks")["tasks"]]
    assert {"recall", "bytes"} <= set(names)
    assert "recall" in cli("tasks", "list").out


def test_a_task_shows_its_settings_with_types_and_defaults(cli: Cli) -> None:
    shown = cli("tasks", "show", "recall", "--json").json("task")
    settings = {item["name"]: item for item in shown["settings"]}
    assert settings["pairs"]["type"].startswith("integer")
    assert not settings["pairs"]["required"]
    text = cli("tasks", "show", "recall").out
    assert all(name in text for name in settings)


def test_a_required_setting_says_so(cli: Cli) -> None:
    settings = {s["name"]: s for s in cli("tasks", "show", "bytes", "--json").json("task")["settings"]}
    assert settings["path"]["required"]
    assert "required" in cli("tasks", "show", "bytes").out


def test_an_unknown_task_names_the_nearest(cli: Cli) -> None:
    result = cli("tasks", "show", "recal")
    assert result.code == 2
    assert "unknown task 'recal'; did you mean 'recall'?" in result.err
    assert result.out == ""


def test_samples_are_read_by_people_with_their_targets_marked(cli: Cli) -> None:
    small = (
        "tasks",
        "show",
        "recall",
        "--set",
        "length=12",
        "--set",
        "pairs=2",
        "--set",
        "vocab=16",
        "--samples",
        "2",
    )
    first, _ = cli(*small, "--json").json("task")["samples"]
    assert len(first["words"]) == 12
    told = dict(zip(first["words"][:4:2], first["words"][1:4:2], strict=True))
    asked = [(w, t) for w, t in zip(first["words"], first["targets"], strict=True) if t is not None]
    assert len(asked) == 2
    assert all(told[word] == target for word, target in asked)
    assert all(f"{word}→{target}" in cli(*small).out for word, target in asked)


def test_samples_of_a_text_run_together_and_need_its_path(cli: Cli, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be " * 99)
    show = ("tasks", "show", "bytes")
    assert "Samples need its required settings: --set path=VALUE" in cli(*show).out
    assert cli(*show, "--json").json("task")["samples"] is None
    assert (
        "to be or not to be"
        in cli(*show, "--set", f"path={text}", "--set", "length=32", "--samples", "1").out
    )
    result = cli(*show, "--set", "path")
    assert (result.code, "NAME=VALUE" in result.err) == (2, True)
