"""Starting the dashboard: the Streamlit command line and its environment.

The database's URL travels by environment variable, because command lines are shown to every user of a machine and URLs
may hold passwords.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from crossbreed.storage import Database

ADDRESS = "127.0.0.1"
URL_VARIABLE = "CROSSBREED_DB"
DEFAULT_URL = "./crossbreed.db"
APP = Path(__file__).with_name("app.py")

_OPTIONS = {
    "server.address": ADDRESS,
    "server.fileWatcherType": "none",
    "server.enableStaticServing": "false",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "viewer",
    # Otherwise Streamlit shows strings that stand alone in the entry point, such as docstrings.
    "runner.magicEnabled": "false",
    "client.showErrorLinks": "false",
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#56B4E9",
}

# A page of another site whose name was pointed at this machine may not talk to the server.
_HOSTS = (ADDRESS, "localhost")


def command(port: int | None = None, *, browser: bool = True) -> list[str]:
    """The command line of a server on loopback. ``port`` None: the first free one from 8501; without ``browser`` no window
    is opened."""
    options = _OPTIONS | {"server.headless": "false" if browser else "true"}
    if port is not None:
        options["server.port"] = str(port)
    flags = [f"--{name}={value}" for name, value in options.items()]
    flags += [f"--server.allowedHosts={host}" for host in _HOSTS]
    return [sys.executable, "-m", "streamlit", "run", str(APP), *flags]


def environment(url: str) -> dict[str, str]:
    """This process's environment with the database at ``url`` in it."""
    # Settings of other Streamlit apps of this user must not move this one off loopback.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMLIT_")}
    return {**kept, URL_VARIABLE: url, "OMP_NUM_THREADS": "1"}


def serve(url: str, port: int | None = None, *, browser: bool = True) -> NoReturn:
    """Become the server of the database at ``url``: signals, Ctrl-C among them, reach it and nothing stays behind.

    Raises StorageError, before anything starts, when there is no database to read.
    """
    Database.open(url, read_only=True).close()
    line = command(port, browser=browser)
    os.execve(line[0], line, environment(url))
