"""``python -m crossbreed.dashboard``: serve the database of CROSSBREED_DB. ``crossbreed dashboard`` runs this."""

from __future__ import annotations

import argparse
import os
import sys

from crossbreed.core.errors import CrossbreedError
from crossbreed.dashboard.launch import DEFAULT_URL, URL_VARIABLE, serve


def main() -> int:
    """Becomes the server; returns exit status 2 for a database that cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m crossbreed.dashboard",
        description=f"Show the searches of the database at ${URL_VARIABLE} (default {DEFAULT_URL}) in a browser.",
    )
    parser.add_argument("--port", type=int, help="a port on loopback; default: the first free one from 8501")
    parser.add_argument("--no-browser", action="store_true", help="open no browser window")
    given = parser.parse_args()
    try:
        serve(os.environ.get(URL_VARIABLE, DEFAULT_URL), given.port, browser=not given.no_browser)
    except CrossbreedError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
