"""Reaching a Ray cluster: the local one that a search starts for itself, or one that is there already."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import RayError

from crossbreed.core.errors import ConfigError

SHARED_MEMORY = 128 * 1024 * 1024
"""Ray's object store on a local cluster, bytes. Records are small; Ray's default takes a third of the machine."""

ANSWER_S = 5.0
"""Longest wait for a given address to answer."""


def connect(address: str | None, cpus: int, runtime_env: Mapping[str, Any]) -> None:
    """Start a local cluster of ``cpus`` cores for this process alone, or join the one at ``address``.

    Raises ConfigError when the address cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A worker without a GPU keeps its view of the devices as it is, instead of an empty one.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    quiet: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if runtime_env:
        quiet["runtime_env"] = dict(runtime_env)
    with _own_signals():
        _init(address, cpus, quiet)


def _init(address: str | None, cpus: int, quiet: Mapping[str, Any]) -> None:
    if address is None:
        # Said outright: left out, Ray would join whatever cluster it finds running on this machine.
        ray.init(
            address="local",
            num_cpus=cpus,
            object_store_memory=SHARED_MEMORY,
            include_dashboard=False,
            **quiet,
        )
        return
    _check_answers(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"Ray cluster {address!r} cannot be reached: {str(error).splitlines()[0]}. "
            "A cluster that asks for a token needs RAY_AUTH_MODE=token, and its token in RAY_AUTH_TOKEN or "
            "~/.ray/auth_token."
        ) from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what this process does on signals: Ray makes SIGTERM its sudden end, where a search would stop in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _check_answers(address: str) -> None:
    """Raise ConfigError unless something listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"Ray cluster {address!r} cannot be reached: nothing answers at this address ({error})."
        ) from error
