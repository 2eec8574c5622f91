"""Streamlit's command line, which ends in order on Ctrl-C: its ASGI server lets the interrupt through to click, whose own
answer is the word "Aborted!" and the exit code of a fault."""

from __future__ import annotations

import sys

import click
from streamlit.web.cli import main

INTERRUPTED = 130

if __name__ == "__main__":
    try:
        main(prog_name="streamlit", standalone_mode=False)
    except click.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
