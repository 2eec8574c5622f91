"""A virtual environment as a third party's: it sees the test environment's packages, and has wheels of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

BUILD = """
import importlib, os, sys, tomllib
wheels, *projects = sys.argv[1:]
for project in projects:
    os.chdir(project)
    with open("pyproject.toml", "rb") as file:
        backend = tomllib.load(file)["build-system"]["build-backend"]
    importlib.import_module(backend).build_wheel(wheels)
"""
"""Builds a wheel of each project as pip does, by its own backend, in one process instead of three for each."""


class Elsewhere:
    """Built in ``folder`` without a network. ``python`` and ``run`` are this environment's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _call([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], cwd=folder)
        self.python = folder / "venv" / "bin" / "python"
        site = Path(self.output("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        packages = sysconfig.get_path("purelib")
        # addsitedir also follows the path files found there, such as that of an editable install.
        (site / "test_environment.pth").write_text(f"import site; site.addsitedir({packages!r})\n")

    def install(self, projects: Iterable[Path]) -> None:
        """Build a wheel of each project, from a copy, and install it."""
        sources, wheels = self.folder / "sources", self.folder / "wheels"
        copies = [
            shutil.copytree(
                project,
                sources / project.name,
                ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"),
            )
            for project in projects
        ]
        wheels.mkdir()
        _call([sys.executable, "-c", BUILD, str(wheels), *map(str, copies)], cwd=self.folder)
        built = sorted(map(str, wheels.glob("*.whl")))
        assert len(built) == len(copies)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python)]
        _call([*pip, "install", "--quiet", "--no-deps", "--no-index", *built], cwd=self.folder)

    def run(self, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A Python process of this environment, whatever it ends with."""
        return _run([str(self.python), *map(str, arguments)], cwd or self.folder)

    def output(self, *arguments: object, cwd: Path | None = None) -> str:
        """Standard output of a process that must succeed."""
        done = self.run(*arguments, cwd=cwd)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def crossbreed(self, *arguments: object, cwd: Path | None = None) -> str:
        """Standard output of a command that must succeed."""
        return self.output("-m", "crossbreed", *arguments, cwd=cwd)

    def commands(self, *commands: tuple[object, ...]) -> list[Any]:
        """The JSON of several commands, each of which must succeed, run in one process: torch is imported once."""
        code = (
            "import contextlib, io, json, sys\n"
            "from crossbreed.cli import run\n"
            "found = []\n"
            "for arguments in json.loads(sys.argv[1]):\n"
            "    with contextlib.redirect_stdout(io.StringIO()) as out:\n"
            "        code = run(arguments)\n"
            "    assert code == 0, (arguments, out.getvalue())\n"
            "    found.append(json.loads(out.getvalue()))\n"
            "print(json.dumps(found))"
        )
        asked = json.dumps([[*map(str, command), "--json"] for command in commands])
        found: list[Any] = json.loads(self.output("-c", code, asked))
        return found

    def listing(self) -> dict[str, dict[str, Any]]:
        """What ``crossbreed plugins`` lists there, by name; nothing may be broken."""
        found = json.loads(self.crossbreed("plugins", "--json"))
        assert found["broken"] == []
        return {item["name"]: item for item in found["plugins"]}

    def test(self, folders: Iterable[Path], *arguments: str) -> str:
        """Run pytest on folders of tests; all must pass and something must run."""
        options = ["--import-mode=importlib", "-p", "no:cacheprovider", "-q", *arguments]
        return self.output("-m", "pytest", *options, *folders)


def _run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CROSSBREED_", "PYTEST_"))
    }
    environment = {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "240"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def _call(command: list[str], cwd: Path) -> None:
    done = _run(command, cwd)
    assert done.returncode == 0, done.stdout + done.stderr
