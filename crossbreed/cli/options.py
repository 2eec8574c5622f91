"""Options that several commands share, and what they resolve to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crossbreed.core.host import Host, Registry

DEFAULT_DB = "./crossbreed.db"

Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file that offers plugins; may be repeated."),
]
Db = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="URL",
        envvar="CROSSBREED_DB",
        help="The database: an SQLite file, or a URL such as postgresql://user@host/name.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="On bad input, show the whole traceback.")]


def examples(*lines: str) -> str:
    """The epilogue of a command's help: one example a line."""
    return "\n\n".join(["[bold]Examples[/bold]", *lines])


def registry_of(plugins: list[Path] | None) -> Registry:
    """Everything registered, with the files named by ``--plugin``; raises PluginError for a file that cannot be used."""
    return Host.load([str(path) for path in plugins or ()])
