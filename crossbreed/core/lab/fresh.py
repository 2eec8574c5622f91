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
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from crossbreed.core.errors import CrossbreedError, OutOfMemory

POLL_S = 0.1


class Stopped(CrossbreedError):
    """The caller was asked to stop before the function returned; its process has been ended."""


class Process:
    """A new interpreter that calls ``function``, written ``module:name``, with one argument.

    What it is told while it runs it finds in ``told``, there, in its own module.
    """

    def __init__(self, function: str, argument: Any) -> None:
        self.function = function
        self._folder = tempfile.TemporaryDirectory(prefix="crossbreed-fresh-")
        self._answer = Path(self._folder.name) / "answer.json"
        # The child imports what this process would: plugins and sources included.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # A group of its own: Ctrl-C is for the parent, which ends the child.
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__, function, str(self._answer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment,
            process_group=0,
        )
        pickle.dump(argument, self._pipe)
        self._pipe.flush()

    def tell(self, word: str) -> None:
        """Let the child hear a word. Raises BrokenPipeError where it has ended."""
        self._pipe.write(f"{word}\n".encode())
        self._pipe.flush()

    def ended(self, wait_s: float = 0.0) -> bool:
        """Whether it has ended, or does within some seconds."""
        if not wait_s:
            return self._child.poll() is not None
        try:
            self._child.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def died(self) -> bool:
        """Whether it has ended without a result or an error."""
        return self.ended() and not self._answer.exists()

    def result(self) -> Any:
        """What the function has returned, JSON data. Raises OutOfMemory where the child ran out of memory, and CrossbreedError for
        anything else, with the child's own sentence."""
        if not self._answer.exists():
            raise CrossbreedError(
                f"the process of {self.function} ended with code {self._child.returncode} and no answer"
            )
        found = json.loads(self._answer.read_text(encoding="utf-8"))
        if "error" in found:
            kind = OutOfMemory if found["out_of_memory"] else CrossbreedError
            raised = kind(f"{found['error']} (in a process of its own)")
            raised.add_note(found["traceback"])
            raise raised
        return found["result"]

    def end(self) -> None:
        """Kill it, and forget its answer."""
        self._child.kill()
        self._child.wait()
        with suppress(BrokenPipeError):
            self._pipe.close()
        self._folder.cleanup()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._child.stdin is not None
        return self._child.stdin


def call(function: str, argument: Any, *, stop: Callable[[], bool] = lambda: False) -> Any:
    """What ``function``, written ``module:name``, returns for ``argument`` in a new interpreter: JSON data.

    Raises Stopped when ``stop`` said so, and otherwise what ``Process.result`` raises.
    """
    child = Process(function, argument)
    try:
        while not child.ended(POLL_S):
            if stop():
                raise Stopped(f"asked to stop while {function} ran in a process of its own")
        return child.result()
    finally:
        child.end()


told: SimpleQueue[str] = SimpleQueue()
"""The child's side: words from the parent, in order."""


def _listen_and_end_with_parent() -> None:
    for line in sys.stdin.buffer:
        told.put(line.decode().strip())
    os._exit(1)


def main(function: str, answer: str) -> None:
    """The child's side."""
    argument = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_listen_and_end_with_parent, daemon=True).start()
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
    # The module that the function finds when it imports it, not this second one of another name.
    from crossbreed.core.lab import fresh

    fresh.main(*sys.argv[1:])
