"""``python -m crossbreed.dashboard``: serve the database of CROSSBREED_DB. ``crossbreed dashboard`` runs this."""

from __future__ import annotations

import argparse
import os
import sys

from crossbreed.core.errors import CrossbreedError
from crossbreed.dashboard.launch import (
    ADDRESS,
    DEFAULT_URL,
    EXPOSED,
    URL_VARIABLE,
    check_host,
    on_this_machine,
    serve,
)


def main() -> int:
    """Becomes the server; returns exit status 2 for a database that cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m crossbreed.dashboard",
        description=f"Show the searches of the database at ${URL_VARIABLE} (default {DEFAULT_URL}) in a browser.",
    )
    parser.add_argument("--port", type=int, help="a port on loopback; default: the first free one from 8501")
    parser.add_argument("--no-browser", action="store_true", help="open no browser window")
    parser.add_argument("--host", default=ADDRESS, help=f"the address to serve at; default: {ADDRESS}")
    parser.add_argument("--expose", action="store_true", help="serve to other machines at --host")
    given = parser.parse_args()
    url = os.environ.get(URL_VARIABLE, DEFAULT_URL)
    try:
        check_host(given.host, expose=given.expose)
        if not on_this_machine(given.host):
            print(EXPOSED.format(host=given.host), file=sys.stderr, flush=True)
        serve(url, given.port, browser=not given.no_browser, host=given.host)
    except CrossbreedError as error:
        print(f"crossbreed: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
