"""Starting the dashboard: the Streamlit command line and its environment.

The database's URL travels by environment variable, because command lines are shown to every user of a machine and URLs
may hold passwords.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import NoReturn

from crossbreed.core.errors import ConfigError
from crossbreed.storage import Database

ADDRESS = "127.0.0.1"
URL_VARIABLE = "CROSSBREED_DB"
DEFAULT_URL = "./crossbreed.db"
SERVER = Path(__file__).with_name("server.py")

_OPTIONS = {
    "server.fileWatcherType": "none",
    "server.enableStaticServing": "false",
    # Looking through ten thousand candidates for garbage after every rerun would hold up the answers to all tabs.
    "runner.postScriptGC": "false",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "viewer",
    # Otherwise Streamlit shows strings that stand alone in the entry point, such as docstrings.
    "runner.magicEnabled": "false",
    "client.showErrorLinks": "false",
    # White stands on it where something is chosen, and it stands on the page's own background elsewhere: readable in both.
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#0F85C9",
}

EXPOSED = (
    "Whoever reaches {host} can read all of this database without a password: studies, genomes, results, tracebacks, and names "
    "of machines and files. Nothing can be changed."
)


def check_host(host: str, *, expose: bool) -> None:
    """Raise ConfigError for what is no address, and for one beyond this machine that nobody said to expose."""
    if not on_this_machine(host) and not expose:
        raise ConfigError(
            f"--host {host!r} is reached from other machines; add --expose to serve there. {EXPOSED.format(host=host)}"
        )


def on_this_machine(host: str) -> bool:
    """Whether an address is loopback. Raises ConfigError for what is no address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise ConfigError(f"--host {host!r} is no IP address, such as 127.0.0.1 or 0.0.0.0.") from None


def _hosts(host: str) -> tuple[str, ...]:
    """Names under which browsers may ask: a page of another site whose name was pointed at this machine may not talk to the
    server. A server on all addresses has names that only its users know."""
    every = not on_this_machine(host) and ipaddress.ip_address(host).is_unspecified
    return ("*",) if every else (host, ADDRESS, "localhost")


def command(port: int | None = None, *, browser: bool = True, host: str = ADDRESS) -> list[str]:
    """The command line of a server at an address. ``port`` None: the first free one from 8501; without ``browser`` no window
    is opened."""
    options = _OPTIONS | {"server.address": host, "server.headless": "false" if browser else "true"}
    if port is not None:
        options["server.port"] = str(port)
    flags = [f"--{name}={value}" for name, value in options.items()]
    flags += [f"--server.allowedHosts={name}" for name in dict.fromkeys(_hosts(host))]
    return [sys.executable, "-m", "crossbreed.dashboard.streamlit_cli", "run", str(SERVER), *flags]


def environment(url: str) -> dict[str, str]:
    """This process's environment with the database at ``url`` in it."""
    # Settings of other Streamlit apps of this user must not move this one off loopback.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMLIT_")}
    return {**kept, URL_VARIABLE: url, "OMP_NUM_THREADS": "1"}


def serve(url: str, port: int | None = None, *, browser: bool = True, host: str = ADDRESS) -> NoReturn:
    """Become the server of the database at ``url``: signals, Ctrl-C among them, reach it and nothing stays behind.

    Raises StorageError, before anything starts, when there is no database to read.
    """
    Database.open(url, read_only=True).close()
    line = command(port, browser=browser, host=host)
    os.execve(line[0], line, environment(url))
