"""``crossbreed dashboard``: studies in a browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Plugins, registry_of


def dashboard(
    db: Db = DEFAULT_DB,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port to serve at; default: the first free one from 8501."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to serve at. One beyond this machine needs --expose."),
    ] = "127.0.0.1",
    expose: Annotated[
        bool,
        typer.Option(
            "--expose", help="Let other machines read the whole database at --host, without a password."
        ),
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Open no browser window.")] = False,
    plugin: Plugins = None,
    debug: Debug = False,
) -> None:
    """Serve the dashboard, on this machine's loopback. It reads the database and never writes; Ctrl-C ends it."""
    trust = registry_of(plugin).trust
    # This process becomes the server, so that signals reach it. The URL may hold a password, and environments are
    # private where command lines are not.
    command = [sys.executable, "-m", "crossbreed.dashboard"]
    command += [] if port is None else ["--port", str(port)]
    command += ["--no-browser"] if no_browser else []
    command += ["--host", host, *(["--expose"] if expose else [])]
    sys.stdout.flush()
    os.execve(sys.executable, command, {**os.environ, **trust.environment(), "CROSSBREED_DB": db})
