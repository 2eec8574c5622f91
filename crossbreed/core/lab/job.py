"""A job: everything a worker needs to run one trial, as plain data that can be pickled and sent anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from crossbreed.core.errors import ConfigError
from crossbreed.core.host import PluginFile
from crossbreed.core.lab.speeds import Settled
from crossbreed.core.trust import Trust

Phase = Literal["profile", "train", "evaluate"]
WHOLE: tuple[Phase, ...] = ("profile", "train", "evaluate", "profile")
"""A whole trial: forced rates before training, own decisions after it."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run (study, number, seed) under one lease.

    architecture: a genome's data; canonicalised by the worker. task: {name, params}. cost: {name, params}.
    recipe:       the study's ``train`` section. rungs: training tokens at the end of each rung to reach, from the first
                  one on; empty for all of the recipe's.
    plugins:      the files named for the search; trust: which plugins installed where the worker runs may be loaded too.
    budget:       a budget with its reference values, or None. certificate: the nominal one it was accepted with.
    artefacts:    this run's own folder; a job for the same run finds its checkpoints there and goes on from them.
    phases:       done in this order. ``profile`` measures forced rates while training lies ahead, own decisions after it;
                  ``points`` replaces that choice.
    analytics:    whether a trained, routed model's decisions are looked at after it was timed at its own.
    memory:       whether training that begins on a CUDA device has its memory peak measured first, in a process of its own.
    gpus:         the share of a GPU that its worker is to have; None: whatever it has.
    devices:      of one host, that training is spread over; each takes as many rows of every batch. On a CPU: processes.
    captured:     whether training may replay recorded passes on a CUDA device (see ``lab.passes``).
    speeds:       what mixers of its candidate are built with, on the devices on which that was measured.
    judged:       operating points at which ``evaluate`` judges the model before its own decisions.
    """

    study: str
    number: int
    seed: int
    lease: str
    architecture: dict[str, Any]
    task: dict[str, Any]
    recipe: dict[str, Any]
    artefacts: str
    rungs: tuple[int, ...] = ()
    budget: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None
    plugins: tuple[PluginFile, ...] = ()
    trust: Trust = field(default_factory=Trust)
    cost: dict[str, Any] = field(default_factory=lambda: {"name": "analytic", "params": {}})
    device: str = "cpu"
    threads: int = 1
    backend: str = "auto"
    phases: tuple[Phase, ...] = WHOLE
    points: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    analytics: bool = True
    memory: bool = True
    captured: bool = True
    gpus: float | None = None
    speeds: Settled = field(default_factory=dict)
    devices: int = 1

    @property
    def key(self) -> str:
        """``study/number/seed``."""
        return f"{self.study}/{self.number}/{self.seed}"

    def rung_tokens(self, recipe_rungs: list[int]) -> list[int]:
        """The rungs to reach. Raises ConfigError unless they rise and stay within the recipe's tokens."""
        rungs = list(self.rungs) or recipe_rungs
        rising = all(a < b for a, b in pairwise(rungs))
        if not rising or rungs[0] < 1 or rungs[-1] > recipe_rungs[-1]:
            raise ConfigError(
                f"rungs of run {self.key} are {rungs}; they must rise and end within the recipe's {recipe_rungs[-1]} tokens"
            )
        return rungs
