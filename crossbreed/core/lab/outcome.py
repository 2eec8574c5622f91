"""How a run ends that something was raised in: as a state with its cause, never as an exception."""

from __future__ import annotations

import traceback

import torch

from crossbreed.core.errors import (
    ArtefactsLost,
    CrossbreedError,
    DiskFull,
    Diverged,
    NotFinite,
    OutOfMemory,
)
from crossbreed.core.lab.fresh import Stopped
from crossbreed.core.lab.records import Finished, State

ALLOCATOR_SENTENCE = "can't allocate memory"
"""How torch words a failed allocation on the host, which it raises as a plain RuntimeError."""

PREFIXES: dict[type[CrossbreedError], str] = {
    NotFinite: "non_finite: ",
    DiskFull: "disk: ",
    ArtefactsLost: "unreachable: ",
}
"""What the cause of a failure begins with where a driver or a reader tells such failures from others."""


class Preempted(Exception):
    """The executor asked the trial to stop; its checkpoint is written."""


def of(error: Exception) -> Finished:
    """The last record of a run in which ``error`` was raised."""
    if isinstance(error, (Preempted, Stopped)):
        return Finished("preempted", str(error))
    if isinstance(error, Diverged):
        return Finished("diverged", str(error))
    state, cause = _read(error)
    return Finished(state, cause, "".join(traceback.format_exception(error)))


def _read(error: Exception) -> tuple[State, str]:
    if isinstance(error, (MemoryError, OutOfMemory, torch.OutOfMemoryError)):
        return "out_of_memory", _sentence(error)
    if isinstance(error, CrossbreedError):
        prefix = next((words for kind, words in PREFIXES.items() if isinstance(error, kind)), "")
        return "failed", f"{prefix}{error}"
    state: State = "out_of_memory" if ALLOCATOR_SENTENCE in str(error) else "failed"
    return state, f"exception: {_sentence(error)}"


def _sentence(error: Exception) -> str:
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0] if first else 'no message'}"
