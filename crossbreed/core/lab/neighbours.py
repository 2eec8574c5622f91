"""Who else is at work on a device while something is timed there: other processes, of ours or of anybody's.

On the host's processors a neighbour is told from the operating system's table of processes, on a GPU from NVML's. A GPU's
timing is watched on both: what launches its work runs on a processor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import psutil
import torch

from crossbreed.core.lab import mps

OF_NEEDED, OF_REST = 0.10, 0.25
"""What others may use unnoticed: this share of the cores that the timing needs, and this of those it leaves free."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""Resolution of a process's CPU time. One tick of each process is not believed: it may have begun before the watch."""


class Process(NamedTuple):
    """A process of the host; ``started`` tells a reused number from the same process."""

    pid: int
    started: float
    name: str


Table = Callable[[], Mapping[Process, float]]
"""CPU seconds used so far by every other process that runs on this process's cores."""


class Gpu(Protocol):
    """What is known of the processes on a GPU."""

    def listed(self) -> set[int]:
        """Ids of the processes that hold it, this one among them."""
        ...

    def busy(self, since_us: int) -> set[int] | None:
        """Ids of those that computed since then (microseconds of the epoch); None where the GPU cannot say."""
        ...


class Watch:
    """``begin`` and ``end`` around a timed region. One watch may be used again and again."""

    def __init__(
        self,
        *,
        needed: int,
        cores: int | None = None,
        table: Table | None = None,
        gpu: Gpu | None = None,
        blind: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``needed``: threads that the timed work keeps busy. ``blind``: its GPU cannot be watched."""
        self.cores = len(_affinity()) if cores is None else cores
        self.needed = min(needed, self.cores)
        self._table, self._gpu, self._blind, self._clock = table or other_processes, gpu, blind, clock
        self._before: Mapping[Process, float] = {}
        self._began = self._began_us = 0.0

    @staticmethod
    def of(device: torch.device) -> Watch:
        """The watch over a device: a processor with as many threads as torch uses, or a GPU with one that feeds it."""
        if device.type != "cuda":
            return Watch(needed=torch.get_num_threads())
        # Under MPS the processes of all are one server's to NVML.
        gpu = None if mps.enabled(device) else nvml(device)
        return Watch(needed=1, gpu=gpu, blind=gpu is None)

    def begin(self) -> None:
        self._before = self._table()
        self._began, self._began_us = self._clock(), time.time() * 1e6

    def end(self) -> str | None:
        """Clauses about the neighbours seen since ``begin``; empty where there was none, None where nobody could look."""
        took = max(self._clock() - self._began, 1e-9)
        clauses = [self._on_processors(took)]
        if self._gpu is not None:
            clauses.append(_on_gpu(self._gpu, int(self._began_us)))
        found = "; ".join(filter(None, clauses))
        return None if self._blind and not found else found

    def _on_processors(self, took: float) -> str:
        used = {
            process: max(0.0, seconds - self._before.get(process, 0.0) - TICK_S) / took
            for process, seconds in self._table().items()
        }
        total = sum(used.values())
        if total <= OF_NEEDED * self.needed + OF_REST * (self.cores - self.needed):
            return ""
        busiest = max(used, key=lambda process: used[process])
        return (
            f"other processes kept {total:.1f} of {self.cores} cores busy, "
            f"{used[busiest]:.1f} of them {busiest.name!r} (process {busiest.pid})"
        )


def other_processes() -> dict[Process, float]:
    """The operating system's answer. Processes that may not be looked at, or that share no core with this one, are left out."""
    own, cores, found = os.getpid(), _affinity(), {}
    for process in psutil.process_iter(["name", "create_time", "cpu_times"]):
        known = process.info
        times = known["cpu_times"]
        if process.pid != own and times is not None and cores & _affinity(process.pid, cores):
            key = Process(process.pid, known["create_time"] or 0.0, known["name"] or "unnamed")
            found[key] = times.user + times.system
    return found


def _affinity(pid: int = 0, unknown: frozenset[int] | None = None) -> frozenset[int]:
    """Cores that a process may use; ``unknown`` where that cannot be asked."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except (AttributeError, OSError):
        return unknown if unknown is not None else frozenset(range(os.cpu_count() or 1))


def _on_gpu(gpu: Gpu, since_us: int) -> str:
    listed, own = gpu.listed(), os.getpid()
    # In a container NVML may know this process by its number outside: then one of those listed is this one.
    others = len(listed - {own}) if own in listed else max(0, len(listed) - 1)
    busy = gpu.busy(since_us)
    if busy is None:
        return f"{_others(others)} held the GPU" if others else ""
    at_work = len(busy - {own}) if own in listed else max(0, len(busy) - 1)
    return f"{_others(at_work)} computed on the GPU" if at_work else ""


def _others(count: int) -> str:
    return "another process" if count == 1 else f"{count} other processes"


def nvml(device: torch.device) -> Gpu | None:
    """The GPU as NVML knows it; None where the package nvidia-ml-py or the driver's library is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = torch.cuda.get_device_properties(device).uuid
        return _Nvml(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except ImportError:
        return None
    except pynvml.NVMLError:
        return None


class _Nvml:
    def __init__(self, library: object, handle: object) -> None:
        self._library, self._handle = library, handle

    def listed(self) -> set[int]:
        return {p.pid for p in self._library.nvmlDeviceGetComputeRunningProcesses(self._handle)}  # type: ignore[attr-defined]

    def busy(self, since_us: int) -> set[int] | None:
        nvml = self._library
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, since_us)  # type: ignore[attr-defined]
        except nvml.NVMLError_NotFound:  # type: ignore[attr-defined]
            return set()
        except nvml.NVMLError:  # type: ignore[attr-defined]
            return None
        return {s.pid for s in samples if s.smUtil > 0 and s.timeStamp > since_us}
