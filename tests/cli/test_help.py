from __future__ import annotations

import pytest

from crossbreed.cli.app import app
from tests.cli.conftest import Cli

COMMANDS = [[command.name or command.callback.__name__] for command in app.registered_commands]
COMMANDS += [
    [group.typer_instance.info.name, command.name]
    for group in app.registered_groups
    for command in group.typer_instance.registered_commands
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example_and_takes_plugins(cli: Cli, command: list[str]) -> None:
    result = cli(*command, "--help")
    assert result.code == 0
    assert f"crossbreed {' '.join(command)}" in result.out.split("Examples", 1)[1]
    assert "--plugin" in result.out
    assert "--debug" in result.out
    assert "--no-third-party" in result.out
    assert "--plugins-allow" in result.out
    assert "--trace" in result.out


def test_the_version_is_that_of_the_package(cli: Cli) -> None:
    from importlib.metadata import version

    assert cli("--version").out == f"crossbreed {version('crossbreed')}\n"


def test_no_command_shows_the_help_and_is_bad_input(cli: Cli) -> None:
    result = cli()
    assert result.code == 2
    assert "plugins" in result.out + result.err
