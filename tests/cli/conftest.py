"""Running commands: in this process for most tests, in one of their own where the process itself is the matter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing

from crossbreed.cli import run
from tests.cli.stored import store_study

ROUTER = '''
"""Runs every third token."""
from pydantic import BaseModel
from crossbreed import Decision, Router, RouterCapabilities, RouterDescriptor, hookimpl


class Config(BaseModel, extra="forbid"):
    pass


def build():
    import torch

    class EveryThird(Router, torch.nn.Module):
        def __init__(self, config, build):
            super().__init__()

        def forward(self, h_BTD, context, state):
            return Decision((context.positions_BT % 3 == 0).long()), state

    return EveryThird


@hookimpl
def register_routers():
    can = RouterCapabilities(sites=("gate", "mode", "halt"), max_choices=2)
    return [RouterDescriptor("every_third", build, Config, can, "Runs every third token.")]
'''


@pytest.fixture(scope="module", autouse=True)
def _brief_timing(brief_timing: None) -> None:
    """What a command says of a run is the matter here."""


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self, schema: str) -> dict[str, Any]:
        """Stdout as one JSON object, checked against the committed schema it names."""
        document: dict[str, Any] = json.loads(self.out)
        assert document["schema"] == f"crossbreed/{schema}/1"
        SCHEMAS[document["schema"]].validate(document)
        return document


def committed_schemas() -> dict[str, jsonschema.Draft202012Validator]:
    """Every schema of the package by the name it asks of ``schema``, each able to refer to the others."""
    folder = files("crossbreed.cli").joinpath("schemas")
    rules = [json.loads(file.read_text()) for file in folder.iterdir() if file.name.endswith(".json")]
    for rule in rules:
        jsonschema.Draft202012Validator.check_schema(rule)
    known = referencing.Registry().with_resources(
        (rule["$id"], referencing.Resource.from_contents(rule)) for rule in rules
    )
    return {
        rule["$id"].removeprefix("urn:").replace(":", "/"): jsonschema.Draft202012Validator(
            rule, registry=known
        )
        for rule in rules
    }


SCHEMAS = committed_schemas()


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """``cli("show", file)`` runs a command here, in an empty folder, with wide tables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.delenv("CROSSBREED_DB", raising=False)

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


def in_process(
    *arguments: object, cwd: Path, timeout: float = 120, environment: Mapping[str, str] | None = None
) -> Result:
    """Run a command in a process of its own."""
    environment = {**os.environ, "COLUMNS": "240", "OMP_NUM_THREADS": "1", **(environment or {})}
    command = [sys.executable, "-m", "crossbreed", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def router_file(tmp_path: Path) -> Path:
    """A plugin file that offers one router, ``every_third``."""
    path = tmp_path / "every_third.py"
    path.write_text(ROUTER)
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which distributions are installed; what it holds is forgotten afterwards."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    before = set(sys.modules)
    yield path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(path)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def _stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    path = tmp_path_factory.mktemp("stored") / "results.db"
    return path, store_study(path)


@pytest.fixture
def db(_stored: tuple[Path, dict[int, str]], tmp_path: Path) -> Path:
    """A copy of a database with the study ``small`` (see ``stored.store_study``)."""
    return Path(shutil.copy(_stored[0], tmp_path / "results.db"))


@pytest.fixture
def hashes(_stored: tuple[Path, dict[int, str]]) -> dict[int, str]:
    """Architecture hashes of that study's candidates by number."""
    return _stored[1]
