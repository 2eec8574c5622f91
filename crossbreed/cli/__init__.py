"""The command line: one module a command. Stdout is data, logs go to stderr.

Exit codes: 0 done, 1 fault, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from crossbreed.core.errors import CrossbreedError


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``crossbreed``: run one command and exit with its code."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. Errors raised on purpose become sentences on stderr."""
    from crossbreed.cli.app import app
    from crossbreed.cli.usage import UsageError, sentence

    try:
        # A command returns nothing; an exit on purpose returns its code.
        code = app(args=arguments, prog_name="crossbreed", standalone_mode=False)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except UsageError as error:
        print(f"crossbreed: {sentence(error, arguments)}", file=sys.stderr)
        return 2
    except CrossbreedError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        else:
            print(f"crossbreed: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as fault:
        traceback.print_exc()
        print(
            f"crossbreed: a fault in crossbreed or a plugin: {type(fault).__name__}: {fault}", file=sys.stderr
        )
        return 1
    return code if isinstance(code, int) else 0
