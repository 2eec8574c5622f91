"""Claims as data: what a paper says, which runs would show it, in which direction, and from what difference on it matters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from crossbreed.claims.judge import Direction
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.genome import Architecture

Scale = Literal["cpu", "gpu"]
SCALES: tuple[Scale, ...] = ("cpu", "gpu")


@dataclass(frozen=True)
class Arm:
    """One model of an experiment.

    points:  operating points at which it is judged beside its own decisions, by what claims call them: a schedule counts tokens,
             which scales have different numbers of.
    rate_of: another arm whose routers' realised rate its random or learned routers get (of that arm's chosen tuning run).
    like:    another arm whose matched dimensions it keeps, so that the two differ in their routers alone; otherwise its own
             free dimensions are moved into the budget.
    """

    name: str
    architecture: Architecture
    points: Mapping[str, str] = field(default_factory=dict)
    rate_of: str | None = None
    like: str | None = None


@dataclass(frozen=True)
class Experiment:
    """Arms under one task, budget and recipe, trained on the same seeds.

    budget:  ``match`` and ``cap`` of quantities to tolerances; values are the first arm's, at the task's length.
    recipe:  the ``train`` section of a study file without ``lr``. lrs: tuned over, the same for every arm.
    """

    name: str
    task: Mapping[str, Any]
    arms: tuple[Arm, ...]
    budget: Mapping[str, Any]
    recipe: Mapping[str, Any]
    lrs: tuple[float, ...]

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)


@dataclass(frozen=True)
class Measure:
    """One number of a run: ``quantity`` (see ``measures``) of an arm of an experiment."""

    experiment: str
    arm: str
    quantity: str


@dataclass(frozen=True)
class Test:
    """A sum of measures on shared seeds, less ``target``: its mean is judged by ``direction`` and ``margin``.

    margin: the smallest difference that matters, in the measures' own unit.
    """

    # pytest is not to collect it.
    __test__ = False

    says: str
    terms: tuple[tuple[float, Measure], ...]
    direction: Direction
    margin: float
    target: float = 0.0
    unit: str = ""


@dataclass(frozen=True)
class Timing:
    """A time to be taken on a GPU: of a token decoded after ``tokens``, or of a pass over so many (``metric``), with random
    weights at an operating point."""

    name: str
    architecture: Architecture
    tokens: int
    point: str
    metric: Literal["decode_tokens_per_s", "prefill_tokens_per_s"]


@dataclass(frozen=True)
class Exact:
    """What follows from structure or the ledger alone: ``value`` computes it, without training, and no seed moves it."""

    says: str
    value: Callable[[Parts], float]
    direction: Direction
    margin: float
    target: float = 0.0
    unit: str = ""


@dataclass(frozen=True)
class Speed:
    """A ratio of measured times; needs a GPU record of timings. ``over``, ``under``: keys of its ``timings``."""

    says: str
    over: str
    under: str
    direction: Direction
    margin: float
    target: float = 1.0
    unit: str = "x"


Part = Test | Exact | Speed


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper with what would show it.

    paper: the paper's own number, in words. learned: whether it is about scores that models reach by training.
    """

    id: str
    sentence: str
    paper: str
    parts: tuple[Part, ...]
    learned: bool = True
    note: str = ""

    def experiments(self) -> list[str]:
        """Names of the experiments it needs, in order."""
        found = [m.experiment for part in self.parts if isinstance(part, Test) for _, m in part.terms]
        return list(dict.fromkeys(found))

    def digest(self) -> str:
        """SHA-256 (hex) of everything that decides its verdict beside the runs: terms, directions, margins and targets."""
        parts = [
            [
                type(part).__name__,
                part.says,
                part.direction,
                part.margin,
                part.target,
                [[c, m.experiment, m.arm, m.quantity] for c, m in part.terms]
                if isinstance(part, Test)
                else [],
            ]
            for part in self.parts
        ]
        return digest_of([self.id, self.sentence, parts])


@dataclass(frozen=True)
class Paper:
    """Claims of one paper, or of the cross of all, most decidable first, and their experiments at each scale.

    file: the Python file that declares them. timings: taken at scale gpu, for parts about speed.
    """

    name: str
    title: str
    source: str
    claims: tuple[Claim, ...]
    experiments: Mapping[Scale, tuple[Experiment, ...]]
    file: str
    timings: tuple[Timing, ...] = ()

    def experiment(self, scale: Scale, name: str) -> Experiment | None:
        """None where a scale leaves an experiment out."""
        return next((e for e in self.experiments[scale] if e.name == name), None)


def difference(experiment: str, more: str, less: str, quantity: str) -> tuple[tuple[float, Measure], ...]:
    """Terms of ``more`` minus ``less`` in one quantity."""
    return (1.0, Measure(experiment, more, quantity)), (-1.0, Measure(experiment, less, quantity))


def of(experiment: str, arm: str, quantity: str) -> tuple[tuple[float, Measure], ...]:
    """The one term of a single arm's number."""
    return ((1.0, Measure(experiment, arm, quantity)),)


def minus(
    first: tuple[tuple[float, Measure], ...], second: tuple[tuple[float, Measure], ...]
) -> tuple[tuple[float, Measure], ...]:
    """Terms of one sum minus another: how much one difference is larger than the other."""
    return (*first, *((-c, m) for c, m in second))


def digest_of(data: Any) -> str:
    """SHA-256 (hex) of plain data, whatever the order of its keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(text.encode()).hexdigest()
