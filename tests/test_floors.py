"""The house's floors: imports run downward only (``.importlinter`` states them)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


def test_every_import_contract_is_kept() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core/genome.py", "from crossbreed.core import host"),
        ("core/lab/recipe.py", "import sqlalchemy"),
        ("cli/app.py", "import streamlit"),
        ("core/model/stage.py", "from crossbreed.plugins import mixers"),
        ("plugins/mixers/configs/common.py", "from crossbreed.core.lab import trial"),
    ],
)
def test_an_import_upward_is_found(tmp_path: Path, module: str, line: str) -> None:
    shutil.copytree(
        ROOT / "crossbreed", tmp_path / "crossbreed", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / ".importlinter", tmp_path)
    with (tmp_path / "crossbreed" / module).open("a") as file:
        file.write(f"\n{line}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout
