"""Ray clusters of several nodes on this machine, each node made by ``ray start`` as on a machine of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

START_S = 90.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Cluster:
    """A head without room for workers, and nodes with room for one each by default. It asks for a token.

    environment: what a process needs to join it. dashboard: the port where jobs are submitted.
    """

    folder: Path
    environment: Mapping[str, str]
    port: int = field(default_factory=free_port)
    dashboard: int = field(default_factory=free_port)
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, *options: str, cpus: int = 1) -> subprocess.Popen[bytes]:
        """One more node, of which the cluster may not yet know. One after the other: Ray looks for free ports."""
        return self._start("--address", self.address, "--num-cpus", str(cpus), *options)

    def start(self, *, jobs: bool) -> None:
        head = ["--head", "--port", str(self.port), "--num-cpus", "0"]
        if jobs:
            head += ["--include-dashboard", "true", "--dashboard-port", str(self.dashboard)]
        else:
            head += ["--include-dashboard", "false"]
        self._start(*head)

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """End a node with everything on it, as when its machine loses power."""
        whole = tree(node.pid)
        for process in whole:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        node.wait(30)
        _, alive = psutil.wait_procs(whole, timeout=15)
        assert alive == []
        self.nodes.remove(node)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *options]
        log = self.folder / f"node-{len(self.nodes)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [*command, "--object-store-memory", "100000000"],
                env={**os.environ, **self.environment, "RAY_USAGE_STATS_ENABLED": "0"},
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )
        self.nodes.append(process)
        limit = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.2)
        return process


@contextmanager
def ray_cluster(folder: Path, *, jobs: bool = False) -> Iterator[Cluster]:
    """A cluster that has its head alone, ended as a whole. ``jobs``: it takes jobs, for which Ray needs its extra ``default``."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    cluster = Cluster(folder, token)
    try:
        cluster.start(jobs=jobs)
        yield cluster
    finally:
        for node in reversed(list(cluster.nodes)):
            cluster.kill(node)


def tree(pid: int) -> list[psutil.Process]:
    """A process and all under it."""
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]
