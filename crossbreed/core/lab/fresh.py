"""Calling a function in a process of its own, which nothing has been done in before.

The child ends when the parent does, however that ends: it watches a pipe that the parent holds open.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crossbreed.core.errors import CrossbreedError, OutOfMemory

POLL_S = 0.1


class Stopped(CrossbreedError):
    """The caller was asked to stop before the function returned; its process has been ended."""


def call(function: str, argument: Any, *, stop: Callable[[], bool] = lambda: False) -> Any:
    """What ``function``, written ``module:name``, returns for ``argument`` in a new interpreter: JSON data.

    Raises OutOfMemory where the child ran out of memory, Stopped when ``stop`` said so, and CrossbreedError for anything
    else, with the child's own sentence.
    """
    with tempfile.TemporaryDirectory(prefix="crossbreed-fresh-") as folder:
        answer = Path(folder) / "answer.json"
        # The child imports what this process would: plugins and sources included.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", __name__, function, str(answer)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
        try:
            assert child.stdin is not None
            pickle.dump(argument, child.stdin)
            child.stdin.flush()
            while not _ended(child):
                if stop():
                    raise Stopped(f"asked to stop while {function} ran in a process of its own")
        finally:
            child.kill()
            child.wait()
        if not answer.exists():
            raise CrossbreedError(
                f"the process of {function} ended with code {child.returncode} and no answer"
            )
        found = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        kind = OutOfMemory if found["out_of_memory"] else CrossbreedError
        raised = kind(f"{found['error']} (in a process of its own)")
        raised.add_note(found["traceback"])
        raise raised
    return found["result"]


def _ended(child: subprocess.Popen[bytes]) -> bool:
    try:
        child.wait(POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main(function: str, answer: str) -> None:
    """The child's side."""
    argument = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    module, _, name = function.partition(":")
    try:
        found: dict[str, Any] = {"result": getattr(importlib.import_module(module), name)(argument)}
    # Whatever it was is told to the parent, which raises it there.
    except Exception as error:
        memory = isinstance(error, MemoryError | OutOfMemory) or type(error).__name__ == "OutOfMemoryError"
        sentence = f"{type(error).__name__}: {error}".splitlines()[0]
        found = {"error": sentence, "out_of_memory": memory, "traceback": traceback.format_exc()}
    whole = Path(answer).with_suffix(".part")
    whole.write_text(json.dumps(found), encoding="utf-8")
    whole.replace(answer)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
