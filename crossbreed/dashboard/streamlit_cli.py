"""Streamlit's command line, which ends in order on Ctrl-C: its ASGI server lets the interrupt through to click, whose own
answer is the word "Aborted!" and the exit code of a fault.

The process then ends at once: a page that a thread was just drawing would find Python half gone, and crash it. It only reads."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click
from streamlit.web.cli import main

INTERRUPTED = 130


def serve() -> int:
    """Run the command line; the exit code."""
    try:
        main(prog_name="streamlit", standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


def leave(code: int) -> NoReturn:
    """End with everything said."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(serve())
