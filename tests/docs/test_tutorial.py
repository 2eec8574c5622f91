"""The tutorial's commands, run one after another in an empty folder as a reader would."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

import crossbreed.cli
from tests.docs.pages import fences

PATIENCE_S = 120


def arguments(command: str) -> list[str]:
    """A command line with this interpreter in place of the one on a reader's PATH."""
    program, *rest = shlex.split(command)
    programs = {"crossbreed": [sys.executable, "-m", "crossbreed"], "python": [sys.executable]}
    return [*programs[program], *rest]


def environment() -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CROSSBREED_", "PYTEST_"))
    }
    return {**kept, "OMP_NUM_THREADS": "1", "COLUMNS": "240", "PYTHONUNBUFFERED": "1"}


def run(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that must succeed prints; ``crossbreed`` runs in this process, which has imported what it needs."""
    program, *rest = shlex.split(command)
    if program == "crossbreed":
        capsys.readouterr()
        code = crossbreed.cli.run(rest)
        printed = capsys.readouterr()
        assert code == 0, f"{command}\n{printed.out}{printed.err}"
        return printed.out
    done = subprocess.run(
        arguments(command), cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def serve(command: str, folder: Path) -> None:
    """Start a dashboard, see it answer where it says that it is, and end it as Ctrl-C does."""
    log = folder / "dashboard.log"
    with log.open("w") as out:
        server = subprocess.Popen(arguments(command), cwd=folder, env=environment(), stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (address := re.search(r"http://\S+", log.read_text())):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        with urlopen(f"{address[0].rstrip('/')}/_stcore/health", timeout=30) as answer:
            assert answer.status == 200
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=30)


def test_every_command_of_the_tutorial_works_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], brief_timing: None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.delenv("CROSSBREED_DB", raising=False)
    printed: dict[str, str] = {}
    for fence in fences("plugins/tutorial.md"):
        if fence.language == "yaml":
            (tmp_path / "study.yaml").write_text(fence.text)
        for command in fence.commands():
            if "dashboard" in command:
                serve(command, tmp_path)
            else:
                printed[command] = run(command, tmp_path, capsys)
    assert "sharp_gate" in printed["crossbreed plugins --plugin sharp_gate.py"]
    assert "attention/gate:sharp_gate" in printed["crossbreed front first --all"]
    front = json.loads(run("crossbreed front first --all --json", tmp_path, capsys))
    states = {row["family"]: row["state"] for row in front["candidates"]}
    assert states["attention/gate:sharp_gate"] == "done"
    assert (tmp_path / "plugins/crossbreed-sharp-gate/pyproject.toml").exists()
    assert len(printed) == 8
