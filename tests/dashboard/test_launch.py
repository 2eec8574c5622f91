from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crossbreed.dashboard import launch

URL = "postgresql://user:s3cret@host/name"


def test_the_url_travels_by_environment_and_never_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMLIT_SERVER_ADDRESS", "0.0.0.0")
    line, environment = launch.command(8600, browser=False), launch.environment(URL)
    assert environment["CROSSBREED_DB"] == URL
    assert not any("s3cret" in word for word in line)
    assert "--server.address=127.0.0.1" in line
    assert "--server.port=8600" in line
    assert "--browser.gatherUsageStats=false" in line
    assert "--server.headless=true" in line
    # Somebody's settings for other apps do not move this one off loopback.
    assert not any(name.startswith("STREAMLIT_") for name in environment)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("missing.db", "there is no database at"),
        ("mysql://u:s3cret@h/d", "of kind 'mysql'"),
        (".", "is a folder"),
    ],
)
def test_a_database_that_cannot_be_read_is_a_sentence_and_exit_2(
    tmp_path: Path, url: str, sentence: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crossbreed.dashboard", "--no-browser"],
        env=os.environ | {"CROSSBREED_DB": url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "is reached from other machines; add --expose"),
        (["--host", "example.com", "--expose"], "'example.com' is no IP address"),
    ],
)
def test_nothing_but_loopback_is_served_by_accident(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crossbreed.dashboard", "--no-browser", *arguments],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_host_that_is_exposed_is_served_under_its_own_name() -> None:
    assert "--server.address=0.0.0.0" in (line := launch.command(host="0.0.0.0"))
    assert "--server.allowedHosts=*" in line
    line = launch.command(host="192.0.2.7")
    assert "--server.allowedHosts=192.0.2.7" in line
    assert "--server.allowedHosts=*" not in line
    assert "can read all of this database" in launch.EXPOSED
