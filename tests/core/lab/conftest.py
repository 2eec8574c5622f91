"""A small real trial: recall of two pairs, two blocks, a few steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, PluginFile, Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Record
from crossbreed.core.lab.trial import run

TASK = {"name": "recall", "params": {"vocab": 20, "pairs": 2, "length": 12, "eval_items": 24}}
STEP_TOKENS = 8 * 12
RECIPE = {
    "tokens": 24 * STEP_TOKENS,
    "batch": 8,
    "lr": 0.01,
    "rungs": [1 / 3, 1.0],
    "log_every": 5,
    "eval_batch": 10,
}


@pytest.fixture(scope="session")
def genome() -> Callable[..., dict[str, Any]]:
    return _genome


def _genome(*, gate: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """Two blocks of the test mixer at width 16; ``gate`` stands at the second."""
    plain = {"sublayers": [{"mixer": "shift", "params": params}]}
    return {"vocab": 20, "d_model": 16, "stages": [{"blocks": [plain, {**plain, "gate": gate}]}]}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def plugin() -> PluginFile:
    return PluginFile.read(Path(__file__).with_name("stub_parts.py"))


@pytest.fixture(scope="session")
def parts(plugin: PluginFile) -> Registry:
    return Host.load([plugin], third_party=False)


@pytest.fixture(scope="session")
def recipe() -> dict[str, Any]:
    return RECIPE


@pytest.fixture
def task(parts: Registry):
    return parts.factory("task", "recall")(parts.config("task", "recall", TASK["params"]))


@pytest.fixture
def build(parts: Registry):
    from crossbreed.core.model.language_model import LanguageModel

    def build(data: dict[str, Any], seed: int = 0):
        return LanguageModel(parts.canonical(Architecture.model_validate(data)), parts, seed=seed)

    return build


@pytest.fixture
def job(plugin: PluginFile, tmp_path: Path) -> Callable[..., Job]:
    def job(architecture: dict[str, Any] | None = None, **changes: Any) -> Job:
        fields: dict[str, Any] = {
            "study": "s",
            "number": 1,
            "seed": 0,
            "lease": "lease-1",
            "architecture": architecture or _genome(),
            "task": TASK,
            "recipe": RECIPE,
            "artefacts": str(tmp_path / "run"),
            "plugins": (plugin,),
            "phases": ("train", "evaluate"),
        }
        return Job(**{**fields, **changes})

    return job


@pytest.fixture(scope="session")
def stop_after() -> Callable[[int], Callable[[], bool]]:
    """Says stop from the n-th time it is asked on."""

    def stop_after(asks: int) -> Callable[[], bool]:
        counter = itertools.count()
        return lambda: next(counter) >= asks

    return stop_after


@pytest.fixture(scope="session")
def records_of() -> Callable[..., list[Record]]:
    """All records of a job."""

    def records_of(job: Job, stop: Callable[[], bool] = lambda: False) -> list[Record]:
        records: list[Record] = []
        run(job, records.append, stop)
        return records

    return records_of
