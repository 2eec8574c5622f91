from __future__ import annotations

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
