"""What a benchmark does, piece by piece: one that fails, or has no time left, stops no other."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import torch

from benchmarks.interleaved import never
from crossbreed.core.errors import MissingCapability

T = TypeVar("T")


def deadline(seconds: float) -> Callable[[], bool]:
    """Says whether so many seconds have gone by since."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def attempts(pieces: Mapping[str, Callable[[], T]], late: Callable[[], bool] = never) -> Iterator[T]:
    """What each piece gives, its memory free again before the next. Those that fail or come too late are said."""
    for name, piece in pieces.items():
        if late():
            print(f"{name}: not measured for want of time", flush=True)
            continue
        begun = time.monotonic()
        try:
            yield piece()
        except Exception:
            print(f"{name}: failed", flush=True)
            traceback.print_exc()
        else:
            print(f"{name}: took {time.monotonic() - begun:.1f} s", flush=True)
        freed()


def run_all(pieces: Mapping[str, Callable[[], object]], late: Callable[[], bool] = never) -> None:
    """Attempts at pieces that keep their own results."""
    for _ in attempts(pieces, late):
        pass


def made(arms: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """The arms that can be made here. Of the others is said what is missing, or how they failed."""
    found = {}
    for name, make in arms.items():
        begun = time.monotonic()
        try:
            found[name] = make()
        except (ImportError, MissingCapability) as error:
            print(f"{name:40} not here: {str(error).splitlines()[0]}", flush=True)
        except Exception:
            print(f"{name:40} failed", flush=True)
            traceback.print_exc()
        else:
            print(f"{name:40} ready after {time.monotonic() - begun:.1f} s", flush=True)
            continue
        freed()
    return found


def freed() -> None:
    """Give memory that nothing refers to back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
