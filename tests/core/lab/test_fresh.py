"""Calls in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from crossbreed.core.errors import ConfigError, CrossbreedError, OutOfMemory
from crossbreed.core.lab import fresh

TOUCHED: list[int] = []
"""What this process has done; another one knows nothing of it."""
HERE = "fresh_functions"


def where(argument: int) -> dict[str, int]:
    TOUCHED.append(argument)
    return {"pid": os.getpid(), "parent": os.getppid(), "touched": len(TOUCHED), "argument": argument}


def wrong(argument: str) -> None:
    raise ConfigError(f"size {argument!r} must be even")


def hungry(argument: object) -> None:
    raise OutOfMemory("nothing is left")


def die(argument: object) -> None:
    os._exit(7)


@pytest.fixture(autouse=True)
def _importable(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """This file as a module that a new interpreter finds on the path of this one."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / f"{HERE}.py").symlink_to(__file__)
    monkeypatch.syspath_prepend(str(folder))


def test_a_call_runs_in_a_process_of_its_own_that_has_done_nothing_before() -> None:
    where(0)
    first, second = (fresh.call(f"{HERE}:where", n) for n in (1, 2))
    assert len({first["pid"], second["pid"], os.getpid()}) == 3
    assert first["parent"] == second["parent"] == os.getpid()
    assert (first["touched"], second["touched"]) == (1, 1)
    assert (first["argument"], second["argument"]) == (1, 2)


def test_its_errors_are_raised_here_with_its_sentence_and_traceback() -> None:
    with pytest.raises(CrossbreedError, match="ConfigError: size '3' must be even") as caught:
        fresh.call(f"{HERE}:wrong", "3")
    assert "in wrong" in "".join(caught.value.__notes__)
    with pytest.raises(OutOfMemory, match="nothing is left"):
        fresh.call(f"{HERE}:hungry", None)
    with pytest.raises(CrossbreedError, match=r"fresh_functions:die ended with code 7 and no answer"):
        fresh.call(f"{HERE}:die", None)


def test_it_is_ended_when_the_caller_is_asked_to_stop() -> None:
    # Other tests may have left helpers of multiprocessing behind: only what begins here counts.
    before = set(psutil.Process().children())
    begun = time.monotonic()
    with pytest.raises(fresh.Stopped, match="asked to stop"):
        fresh.call("time:sleep", 60, stop=lambda: time.monotonic() > begun + 0.3)
    assert not set(psutil.Process().children()) - before


def test_it_does_not_outlive_a_caller_that_is_killed() -> None:
    script = "from crossbreed.core.lab import fresh; fresh.call('time:sleep', 600)"
    caller = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 60
    while not (children := psutil.Process(caller.pid).children()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    caller.kill()
    caller.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
