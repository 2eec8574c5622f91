from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.cli.conftest import in_process


def test_it_serves_on_loopback_until_interrupted(db: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "crossbreed",
        "dashboard",
        "--db",
        str(db),
        "--port",
        str(port),
        "--no-browser",
    ]
    server = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert _healthy(port, server)
        assert str(db) not in Path(f"/proc/{server.pid}/cmdline").read_text()
        listening = Path("/proc/net/tcp").read_text()
        assert f"0100007F:{port:04X} 00000000:0000 0A" in listening  # 127.0.0.1 and no other address
        assert f"00000000:{port:04X} 00000000:0000 0A" not in listening
        os.killpg(server.pid, signal.SIGINT)  # what Ctrl-C in a terminal does
        output, _ = server.communicate(timeout=60)
        assert server.returncode in (0, 130), output
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


def _healthy(port: int, server: subprocess.Popen[str]) -> bool:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5) as answer:
                return bool(answer.read() == b"ok")
        except OSError:
            time.sleep(0.2)
    return False


def test_no_database_is_a_sentence_and_exit_2(tmp_path: Path) -> None:
    result = in_process("dashboard", "--db", "nowhere.db", "--no-browser", cwd=tmp_path)
    assert result.code == 2
    assert result.out == ""
    assert "there is no database at" in result.err
    assert "Traceback" not in result.err


def test_a_port_that_is_none_is_refused(tmp_path: Path) -> None:
    result = in_process("dashboard", "--port", 70000, cwd=tmp_path)
    assert result.code == 2
    assert "65535" in result.err
