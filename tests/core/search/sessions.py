"""Searches in processes of their own, to be watched through their database, and to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import yaml

from crossbreed.core.errors import ConfigError
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow

MISHAPS = Path(__file__).with_name("mishaps.py")
RUN = """
import sys
from crossbreed.core.host import Host, PluginFile
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
url, file, plugin, how, executor, workers, address = sys.argv[1:]
registry = Host.load([PluginFile.read(plugin)], third_party=False)
begin = Study.join if how == "join" else Study.start
place = {"executor": executor, "workers": int(workers), "address": address or None, "device": "cpu"}
with begin(url, StudyFile.load(file), registry) as study:
    print(study.run(**place, join=how == "join").end, flush=True)
"""

Popen = subprocess.Popen[str]


class Begin(Protocol):
    """Starts a process that drives a study, or joins its driver."""

    def __call__(
        self,
        url: str,
        file: StudyFile,
        how: str = "drive",
        *,
        executor: str = "inline",
        workers: int = 1,
        address: str = "",
        before: str = "",
    ) -> Popen:
        """``before``: what the process does first, in Python."""
        ...


@contextmanager
def sessions(folder: Path) -> Iterator[Begin]:
    """Sessions of studies in ``folder``; all are dead afterwards. Each leads a process group, as under a shell."""
    begun: list[Popen] = []

    def begin(
        url: str,
        file: StudyFile,
        how: str = "drive",
        *,
        executor: str = "inline",
        workers: int = 1,
        address: str = "",
        before: str = "",
    ) -> Popen:
        (folder / "study.yaml").write_text(yaml.safe_dump(file.as_data()))
        words = [url, str(folder / "study.yaml"), str(MISHAPS), how, executor, str(workers), address]
        begun.append(
            subprocess.Popen(
                [sys.executable, "-c", before + RUN, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                process_group=0,
            )
        )
        return begun[-1]

    try:
        yield begin
    finally:
        for process in begun:
            process.kill()
            process.wait()


def wait_until(true: Callable[[], bool], *processes: Popen, seconds: float = 240) -> None:
    """Wait until something is true while processes live."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for process in processes:
            assert process.poll() is None, process.communicate()
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")


def when(url: str, true: Callable[[Repository], bool], *processes: Popen) -> None:
    """Wait until something is true of the stored study."""

    def holds() -> bool:
        try:
            with Repository.open(url, read_only=True, create=False) as repository:
                return repository.find_study("tiny") is not None and true(repository)
        except ConfigError:
            return False  # not made yet

    wait_until(holds, *processes)


def held_by(repository: Repository, role: str) -> list[RunRow]:
    """Runs whose lease a process of that role has signed."""
    runs = repository.runs(repository.open_study("tiny").id, ("leased", "running"))
    return [run for run in runs if (signed := Process.read(run.worker)) and signed[0] == role]
