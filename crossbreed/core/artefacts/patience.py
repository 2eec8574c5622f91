"""Waiting a little for room: a file that does not fit now may fit when somebody has cleaned up, and a network comes back."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

from crossbreed.core.errors import ArtefactsLost, DiskFull

T = TypeVar("T")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""How the system says that nothing more fits: on the disk, in the user's share of it, or in one file."""
WAITS_S = (1.0, 5.0)
"""Pauses before what could not be written is tried once more."""


def patiently(write: Callable[[], T], what: str) -> T:
    """What ``write`` returns, called again while the disk is full or a store does not take it.

    Raises DiskFull, whose sentence begins with ``what``, after the last attempt; other errors pass.
    """
    for wait in (*WAITS_S, None):
        try:
            return write()
        except OSError as error:
            if error.errno not in FULL and not isinstance(error, ArtefactsLost):
                raise
            if wait is None:
                why = error.strerror or str(error)
                raise DiskFull(f"{what} ({why}), nor {len(WAITS_S)} times more") from error
            time.sleep(wait)
    raise AssertionError("unreachable")
