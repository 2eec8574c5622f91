"""Ctrl-C and SIGTERM: the first asks for an orderly stop, the second ends at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def orderly(request_stop: Callable[[], None], stopping: Callable[[], bool]) -> Iterator[None]:
    """Inside the block a signal calls ``request_stop``, or raises KeyboardInterrupt once ``stopping`` is true.

    Only the main thread can handle signals; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stopping():
            raise KeyboardInterrupt
        request_stop()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
