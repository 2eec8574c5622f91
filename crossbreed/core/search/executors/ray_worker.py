"""The process of a Ray worker: it runs one job after another, and says before each whether it is fit for one."""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil
import ray
import torch

from crossbreed.core.artefacts import Artefacts, patiently
from crossbreed.core.errors import DiskFull, OutOfMemory
from crossbreed.core.lab import trial
from crossbreed.core.lab.environment import pick_device
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Finished, Record
from crossbreed.core.search.executors.base import Spool

MEMORY_WAIT_S = 30.0
"""Longest wait for predecessors that were killed to be gone, and with them what they held of a device."""
LEFT_BYTES = 256 * 1024 * 1024
"""Device memory that an ended trial may leave behind in its process: the libraries' own workspaces. cuBLAS keeps 32 MiB on Hopper for
each handle and stream, and PyTorch has a handle for each thread, the one of backward passes among them."""


@dataclass(frozen=True)
class Seat:
    """Where a worker's process is."""

    node: str
    pid: int


class Worker:
    """The actor. ``ready`` comes before each job; ``run`` streams the records of one; ``stop`` works while it runs."""

    def __init__(self, spool: str, device: str) -> None:
        self._spool, self._device = Spool(Artefacts.at(spool)), device
        self._stopping = threading.Event()

    def ready(self, gone: Sequence[Seat] = ()) -> Seat:
        """Return once this process may take a job.

        ``gone``: killed workers, whose processes on this node are waited for: a device's memory comes back when they end.
        Raises OutOfMemory when one does not end, or when the last trial left device memory behind, ConfigError when this process
        does not see the device, and ArtefactsLost when it does not reach the artefacts; such a worker is replaced.
        """
        pick_device(self._device)
        self._spool.check_marked()
        node = ray.get_runtime_context().get_node_id()
        _wait_for_end([seat.pid for seat in gone if seat.node == node])
        left = _device_bytes_held()
        if left > LEFT_BYTES:
            raise OutOfMemory(f"the last trial left {left} bytes of device memory behind in its worker")
        self._stopping.clear()
        return Seat(node, os.getpid())

    def run(self, job: Job) -> Iterator[Record]:
        out: queue.SimpleQueue[Record | BaseException | None] = queue.SimpleQueue()

        def emit(record: Record) -> None:
            what = "the record of a result could not be kept"
            patiently(lambda: self._spool.append(job.lease, record), what)
            out.put(record)

        def work() -> None:
            try:
                trial.run(job, emit, self._stopping.is_set)
                out.put(None)
            # A record that could not be kept ends the run: the driver may be gone, and then nothing would be left of it.
            # Whatever else escapes is carried to the driver, which sees the job as lost with this cause.
            except BaseException as error:
                out.put(Finished("failed", f"disk: {error}") if isinstance(error, DiskFull) else error)

        threading.Thread(target=work, name=job.key, daemon=True).start()
        while (item := out.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
            if isinstance(item, Finished):
                return

    def stop(self, why: str) -> None:
        print(why, file=sys.stderr, flush=True)
        self._stopping.set()


def _wait_for_end(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + MEMORY_WAIT_S
    while alive := [pid for pid in pids if _runs(pid)]:
        if time.monotonic() > deadline:
            raise OutOfMemory(
                f"worker process {alive[0]} was killed {MEMORY_WAIT_S:.0f} s ago and has not ended"
            )
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _device_bytes_held() -> int:
    """Device memory that tensors of this process still hold, all devices together; 0 where none was ever used."""
    if not torch.cuda.is_initialized():
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    return sum(torch.cuda.memory_allocated(i) for i in range(torch.cuda.device_count()))
