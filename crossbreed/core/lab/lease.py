"""Holding a device alone on its host while something is timed there, across studies, drivers and users.

The lease is a lock on a file named after the device. The kernel releases it when the holder dies, so that none is ever left
behind; what the file says about its holder is for people only.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from crossbreed.core.errors import CrossbreedError

FOLDER = "CROSSBREED_LEASES"
"""Environment variable: where leases lie. Containers that share a device must share this folder to see each other."""
POLL_S = 0.1
PREFIX = "crossbreed-device-"


class GivenUp(CrossbreedError):
    """The wait for a device ended because the waiting job was asked to stop."""


def device_id(device: torch.device) -> str:
    """What a device is called on its host, whatever number this process knows it by: ``cpu`` or ``cuda-UUID``."""
    if device.type != "cuda":
        return device.type
    return f"cuda-{torch.cuda.get_device_properties(device).uuid}"


def folder() -> Path:
    """The folder of leases: one for the whole host, unless the environment names another."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    # Jobs of a cluster have a TMPDIR each, and would not see each other's leases in it.
    common = Path("/tmp")
    return common if os.access(common, os.W_OK) else Path(tempfile.gettempdir())


@contextmanager
def alone(
    device: torch.device,
    holder: str,
    *,
    waiting: Callable[[str], None] = lambda sentence: None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold ``device`` within the block; ``holder`` says who does, to those who wait.

    ``waiting`` is told once, in a sentence, when somebody else holds it. ``stop`` is asked while waiting: once it says so,
    GivenUp is raised. Not to be nested: a process that waits for itself waits for ever.
    """
    name = device_id(device)
    file = _open(folder() / f"{PREFIX}{name}.lock")
    try:
        told = False
        while not _locked(file):
            if not told:
                told = True
                waiting(f"device {name} is held by {_holder(file)}; timing waits until it is free")
            if stop():
                raise GivenUp(f"asked to stop while waiting for device {name}, held by {_holder(file)}")
            time.sleep(POLL_S)
        _write(file, f"process {os.getpid()} ({holder})")
        yield
    finally:
        os.close(file)


def _open(path: Path) -> int:
    """The lease's file, made by whoever comes first and open to all users of the host."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Without O_CREAT: a file of another user in a folder with the sticky bit is refused to those who might create it.
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(file).st_uid == os.getuid():
            os.fchmod(file, 0o666)
        return file
    except PermissionError:
        # A lock needs no more than reading; who holds it cannot be written down then.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: int, text: str) -> None:
    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        return
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)


def _holder(file: int) -> str:
    return os.pread(file, 4096, 0).decode(errors="replace") or "another process"
