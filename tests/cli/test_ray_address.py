"""A cluster that is already there: joined, used, and left running."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import in_process
from tests.cli.studies import write_study

START_S = 60.0


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster of one node that asks for a token, ended as a whole."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    port = _free_port()
    head = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
            *("--port", str(port), "--num-cpus", "2"),
            *("--object-store-memory", "100000000", "--include-dashboard", "false"),
        ],
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        limit = time.monotonic() + START_S
        while not _listens(port):
            assert head.poll() is None, "the cluster ended while it started"
            assert time.monotonic() < limit, f"no cluster on port {port} after {START_S:.0f} s"
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        whole = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        for process in whole:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        head.wait(30)
        _, alive = psutil.wait_procs(whole, timeout=15)
        assert alive == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_existing_cluster_is_joined_and_left_running(cluster: str, tmp_path: Path) -> None:
    study, db = write_study(tmp_path / "tiny.yaml"), tmp_path / "study.db"
    words = ("search", study, "--db", db, "--ray-address", cluster, "--workers", 1, "--device", "cpu")
    first = in_process(*words, "--json", cwd=tmp_path)
    assert first.code == 0, first.err
    states = {c["state"] for c in first.json("search")["candidates"]}
    assert states == {"done"}
    assert _listens(int(cluster.rsplit(":", 1)[1]))
    # Without an address a search starts a cluster of its own, although this one runs beside it.
    alone = in_process("search", study, "--db", tmp_path / "alone.db", "--device", "cpu", cwd=tmp_path)
    assert alone.code == 0, alone.err
    words = ("search", study, "--db", tmp_path / "other.db", "--ray-address", cluster, "--device", "cpu")
    refused = in_process(*words, cwd=tmp_path, environment={"RAY_AUTH_TOKEN": secrets.token_hex(32)})
    assert refused.code == 2
    assert "RAY_AUTH_MODE=token" in refused.err


def test_a_cluster_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml")
    address = f"127.0.0.1:{_free_port()}"
    result = in_process("search", study, "--ray-address", address, "--device", "cpu", cwd=tmp_path)
    assert result.code == 2
    assert f"Ray cluster '{address}' cannot be reached: nothing answers at this address" in result.err
