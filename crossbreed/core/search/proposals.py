"""What to try next: a search space's starting points, then an Optuna sampler fed from our own tables.

The Optuna study is a cache in memory. It is rebuilt for each proposal from the history and *today's* distributions, so
options may grow or vanish between sessions, nothing needs replaying after a restart, and proposal n of a study is the
same whoever asks for it.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from crossbreed.core.contracts.space import Draw, SearchSpace, Setting
from crossbreed.core.errors import CrossbreedError, PluginError
from crossbreed.core.genome import Architecture
from crossbreed.core.search import samplers
from crossbreed.core.search.draws import Domain, Fixed, Grid, Options, Recorder, joined
from crossbreed.core.search.enumeration import enumerate_draws
from crossbreed.core.search.front import Direction

BUDGET = "budget"
"""Name of the one constraint told to a sampler: relative distance from the budget, at most 0 when met."""


@dataclass(frozen=True)
class Past:
    """An earlier candidate as a sampler sees it.

    values:    one per objective, or None while it is running or when nothing can be said about it.
    violation: relative distance from the budget; above 0 for an infeasible candidate.
    running:   still being trained or measured.
    A candidate that failed has no values, no violation and is not running: it teaches the sampler nothing.
    """

    draws: dict[str, Any]
    values: tuple[float, ...] | None = None
    violation: float = 0.0
    running: bool = False


@dataclass(frozen=True)
class Proposal:
    """An architecture to match and train, with the answers that lead to it again."""

    architecture: Architecture
    draws: dict[str, Any]
    origin: str


class _Memory(FrozenTrial):
    """A trial that Optuna's storage, which copies all it is given, copies without its parameters and distributions.

    Nobody changes those in place, and copying them took most of the time of a proposal.
    """

    def __deepcopy__(self, memo: object) -> FrozenTrial:
        return copy.copy(self)


class _Grown(Exception):
    """A name was asked with options not seen before; the cache is rebuilt with them."""


@dataclass
class Proposer:
    """Proposes architectures of one space under one setting.

    ``population`` is the generation size of the genetic samplers and the number of random proposals before TPE models.
    """

    space: SearchSpace
    setting: Setting
    directions: Sequence[Direction]
    sampler: str = "tpe"
    seed: int = 0
    population: int = 10
    _domains: dict[str, Domain] = field(default_factory=dict)
    _learned: set[str] = field(default_factory=set)
    _memories: dict[tuple[object, ...], _Memory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        samplers.known(self.sampler)
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def starting_points(self) -> list[Proposal]:
        """The space's starting points in order, each with all its answers filled in."""
        return [
            self.replay(draws, "start") for draws in self._asked(self.space.starting_points, self.setting)
        ]

    def replay(self, draws: dict[str, Any], origin: str = "replay") -> Proposal:
        """The proposal that ``draws`` lead to. Raises ConfigError when an answer is no option any more."""
        draw = Fixed(values=draws)
        architecture = self._propose(draw)
        self._learn(draw)
        return Proposal(architecture, draw.answers, origin)

    def grid(self) -> Iterator[Proposal]:
        """Every legal draw of the space, lazily and in a fixed order, so that a restart finds its place again."""
        for architecture, draws in enumerate_draws(self.space, self.setting):
            yield Proposal(architecture, draws, "sampler")

    def ask(self, history: Sequence[Past], attempt: int = 0, sampler: str | None = None) -> Proposal:
        """A fresh proposal after ``history``; ``attempt`` tells apart repeated asks at the same history, ``sampler`` may
        name another one than the proposer's.

        Raises ValueError for a sampler that enumerates.
        """
        name = sampler or self.sampler
        for past in history:
            self._learn_past(past)
        while True:
            seed = np.random.SeedSequence([self.seed, len(history), attempt])
            if samplers.known(name).spreads:
                study = self._sequence(len(history) + attempt)
            else:
                study = self._study(name, history, int(seed.generate_state(1)[0]))
            draw = _Sampled(study.ask(), self._domains, np.random.default_rng(seed))
            try:
                architecture = self._propose(draw)
            except _Grown:
                # Domains only grow and are finite in number, so this ends.
                self._learn(draw)
                continue
            return Proposal(architecture, draw.answers, "sampler")

    def _propose(self, draw: Draw) -> Architecture:
        architecture: Architecture = self._asked(self.space.propose, draw, self.setting)
        return architecture

    def _asked(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """What the space answers; a fault of its own is named as one."""
        try:
            return method(*arguments)
        except (CrossbreedError, _Grown):
            raise
        except Exception as error:
            raise PluginError(
                f"search space {type(self.space).__name__} raised {type(error).__name__} while proposing: {error}"
            ) from error

    def _learn_past(self, past: Past) -> None:
        key = json.dumps(past.draws, sort_keys=True)
        if key not in self._learned:
            draw = Fixed(values=past.draws, strict=False)
            self._propose(draw)
            self._learn(draw)
            self._learned.add(key)

    def _learn(self, draw: Recorder) -> None:
        for name, domain in draw.domains.items():
            known = self._domains.get(name)
            self._domains[name] = joined(known, domain)
            if self._domains[name] != known:
                self._memories.clear()

    def _study(self, name: str, history: Sequence[Past], seed: int) -> optuna.Study:
        study = optuna.create_study(
            directions=["maximize" if d == "max" else "minimize" for d in self.directions],
            sampler=samplers.build(name, seed, self.population),
        )
        worst = self._worst(history)
        generation_key = getattr(study.sampler, "_get_generation_key", lambda: "")()
        complete = 0
        for past in history:
            values = worst if past.violation > 0 else past.values
            if values is not None and not all(map(math.isfinite, values)):
                continue
            if values is None and not past.running:
                continue
            generation = None
            if values is not None and generation_key:
                generation = (generation_key, complete // self.population)
                complete += 1
            study.add_trial(self._memory(past, values, generation))
        return study

    def _memory(
        self, past: Past, values: tuple[float, ...] | None, generation: tuple[str, int] | None
    ) -> _Memory:
        """A candidate as a trial of the cache, made once for as long as today's distributions stay the same."""
        key = (json.dumps(past.draws, sort_keys=True), values, past.violation, generation)
        if key not in self._memories:
            held = {n: d for n, d in self._domains.items() if n in past.draws and d.holds(past.draws[n])}
            trial = optuna.trial.create_trial(
                state=TrialState.RUNNING if values is None else TrialState.COMPLETE,
                values=values,
                params={name: samplers.encoded(domain, past.draws[name]) for name, domain in held.items()},
                distributions={name: samplers.distribution(domain) for name, domain in held.items()},
                constraints=None if values is None else {BUDGET: past.violation},
                system_attrs={} if generation is None else dict([generation]),
            )
            trial.__class__ = _Memory
            self._memories[key] = cast(_Memory, trial)
        return self._memories[key]

    def _worst(self, history: Sequence[Past]) -> tuple[float, ...]:
        """Values for candidates that were never trained: samplers need finite ones, and rank these by violation."""
        rows = [p.values for p in history if p.values is not None and all(map(math.isfinite, p.values))]
        if not rows:
            return (0.0,) * len(self.directions)
        return tuple(
            min(column) if direction == "max" else max(column)
            for column, direction in zip(zip(*rows, strict=True), self.directions, strict=True)
        )

    def _sequence(self, place: int) -> optuna.Study:
        """A study whose next trial is point ``place`` of one low-discrepancy sequence over every name known so far."""
        study = optuna.create_study(sampler=samplers.Sequence(self.seed, place))
        if self._domains:
            # The sampler takes its dimensions from the first trial.
            names = {name: samplers.distribution(domain) for name, domain in self._domains.items()}
            lowest = {name: samplers.encoded(d, d.nearest(None)) for name, d in self._domains.items()}
            study.add_trial(optuna.trial.create_trial(value=0.0, params=lowest, distributions=names))
        return study


class _Sampled(Recorder):
    """Answers from an Optuna trial over the joined domains, brought back into the domain that is asked now."""

    def __init__(self, trial: optuna.Trial, domains: dict[str, Domain], rng: np.random.Generator) -> None:
        super().__init__()
        self._trial, self._domains, self._rng = trial, domains, rng

    def value(self, name: str, domain: Domain) -> Any:
        known = self._domains.get(name)
        if joined(known, domain) != known:
            self.domains[name] = domain
            raise _Grown(name)
        if isinstance(known, Options):
            value = json.loads(self._trial.suggest_categorical(name, known.texts))
            if isinstance(domain, Options) and not domain.holds(value):
                # An option of another context: draw evenly from those that are legal here.
                value = json.loads(domain.texts[int(self._rng.integers(len(domain.texts)))])
            return value
        if isinstance(known, Grid):
            return self._trial.suggest_int(name, known.low, known.high, step=known.step)
        assert known is not None
        return self._trial.suggest_float(name, known.low, known.high, log=known.log)
