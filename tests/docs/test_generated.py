"""Generated pages say what the code says, and a page that differs is told apart."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS


def generate(docs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(docs / "_generate"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_committed_pages_are_as_generated_and_an_edit_by_hand_is_found(tmp_path: Path) -> None:
    done = generate(DOCS, "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    docs = Path(shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__")))
    page = docs / "plugins/reference.md"
    right = page.read_text()
    page.write_text(right.replace("Offer routers", "Offer gates"))
    done = generate(docs, "--check")
    assert done.returncode == 1
    assert "-: Offer gates for the gate, mode or halt site." in done.stdout
    assert "make generated" in done.stderr
    assert generate(docs).returncode == 0
    assert page.read_text() == right
