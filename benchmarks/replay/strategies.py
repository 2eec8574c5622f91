"""Ways to search a recorded table, counted in training tokens: ours, and plain Optuna and Ray Tune beside it.

A strategy is one worker's: it trains one thing at a time. Repeating a configuration is free for everybody, so that no
figure comes from a rival's duplicates; a proposal that was not recorded is infeasible and free as well.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna

from benchmarks.replay.space import ReplayConfig, ReplayGrid
from benchmarks.replay.table import WAYS, Curves
from crossbreed.core.contracts.space import Setting
from crossbreed.core.host import Host
from crossbreed.core.search.draws import Recorder
from crossbreed.core.search.proposals import Past, Proposer
from crossbreed.core.search.rungs import Standing, evidence, promotions
from crossbreed.core.search.screening import Screen

SETTING = Setting(256, 32, 32, (), (), (), Host.load(third_party=False))
COST = "decode_flops_per_token"
TRIES = 10
"""Proposals of a sampler that were known already before one is drawn evenly from the rest."""
IDLE = 50
"""Proposals in a row that were known already, after which a sampler is left for random draws."""


@dataclass
class Account:
    """What was trained so far and what it cost, in tokens of whole runs.

    reached: configuration -> index of the last checkpoint trained to.
    """

    curves: Curves
    goal: float
    reached: dict[int, int] = field(default_factory=dict)
    spent: float = 0.0
    finished: list[int] = field(default_factory=list)
    volume: float = 0.0
    history: list[tuple[float, float]] = field(default_factory=list)

    def train(self, row: int, checkpoint: int) -> None:
        """Train a configuration on to a checkpoint."""
        shares = self.curves.shares
        before = shares[self.reached[row]] if row in self.reached else 0.0
        if shares[checkpoint] <= before:
            return
        self.spent += shares[checkpoint] - before
        self.reached[row] = checkpoint
        if checkpoint == len(shares) - 1:
            self.finished.append(row)
            self.volume = self.curves.volume(self.finished)
            self.history.append((self.spent, self.volume))

    @property
    def won(self) -> bool:
        return self.volume >= self.goal

    @property
    def exhausted(self) -> bool:
        return len(self.finished) == len(self.curves.draws)

    def values(self, row: int, checkpoint: int = -1) -> tuple[float, float]:
        return float(self.curves.score_NC[row, checkpoint]), float(self.curves.cost_N[row])


class _Suggested(Recorder):
    """A space's draws answered by an Optuna trial, as a user's objective would ask for them."""

    def __init__(self, trial: optuna.Trial) -> None:
        super().__init__()
        self.trial = trial

    def choose(self, name: str, options: Any) -> Any:
        value = self.trial.suggest_categorical(name, list(options))
        self.answers[name] = value
        return value


def plain(sampler: Callable[[int], optuna.samplers.BaseSampler]) -> Callable[[Account, int], None]:
    """Optuna by itself: every proposal is trained to the end."""

    def search(account: Account, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore")
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler(seed))
        space, idle = ReplayGrid(ReplayConfig()), 0
        rng = np.random.default_rng(seed)
        while not (account.won or account.exhausted):
            trial = study.ask()
            draw = _Suggested(trial)
            space.propose(draw, SETTING)
            row = account.curves.index(draw.answers)
            if row is None:
                trial.set_constraint("recorded", 1.0)
                study.tell(trial, list(account.curves.reference))
                continue
            idle = idle + 1 if row in account.reached else 0
            if idle > IDLE:
                left = [r for r in range(len(account.curves.draws)) if r not in account.reached]
                account.train(int(rng.choice(left)), len(account.curves.shares) - 1)
            account.train(row, len(account.curves.shares) - 1)
            trial.set_constraint("recorded", 0.0)
            study.tell(trial, list(account.values(row)))

    return search


@dataclass(frozen=True)
class Ours:
    """Our proposals and rungs: what the driver does with one worker.

    rungs:    checkpoints (indices) at the ends of rungs. learn: samplers see the scores of rungs, not of whole runs alone.
    screen:   proposals compared by their costs for every second candidate, as in a study file.
    """

    sampler: str = "tpe"
    rungs: tuple[float, ...] = (1 / 9, 1 / 3, 1.0)
    reduction: float = 3.0
    population: int = 10
    learn: bool = True
    starts: bool = True
    prune: bool = True
    screen: int = 8

    def __call__(self, account: Account, seed: int) -> None:
        curves = account.curves
        ends = [int(np.argmin(np.abs(np.array(curves.shares) - share))) for share in self.rungs]
        space = ReplayGrid(ReplayConfig())
        proposer = Proposer(space, SETTING, WAYS, self.sampler, seed, self.population)
        proposed: list[tuple[dict[str, Any], int | None]] = []
        starts = list(proposer.starting_points()) if self.starts else []
        while not (account.won or account.exhausted):
            begun = sum(row is not None for _, row in proposed)
            promoted = self._promoted(account, ends, closing=begun == len(curves.draws))
            if promoted is not None:
                account.train(promoted, ends[ends.index(account.reached[promoted]) + 1])
                continue
            if begun == len(curves.draws):
                return
            if starts:
                draws = starts.pop(0).draws
                row = curves.index(draws)
            else:
                draws, row = self._fresh(proposer, self._history(account, proposed, ends), account, proposed)
            if row is None:
                proposed.append((draws, None))
                continue
            proposed.append((draws, row))
            if not self._hopeless(account, row):
                account.train(row, ends[0])

    def _fresh(
        self,
        proposer: Proposer,
        history: list[Past],
        account: Account,
        proposed: list[tuple[dict[str, Any], int | None]],
    ) -> tuple[dict[str, Any], int | None]:
        """A proposal that was not made before: the sampler's, or the screened one, else an even draw from what is left."""
        known = {json.dumps(draws, sort_keys=True) for draws, _ in proposed}
        wanted = self.screen if len(history) % 2 else 1
        found: dict[str, tuple[dict[str, Any], int | None]] = {}
        for attempt in range(TRIES + wanted - 1):
            by = "random" if wanted > 1 and attempt % 2 else self.sampler
            draws = proposer.ask(history, attempt, by).draws
            text = json.dumps(draws, sort_keys=True)
            if text not in known:
                found.setdefault(text, (draws, account.curves.index(draws)))
            if len(found) == wanted:
                break
        if found:
            screen = self._screen(account)
            return max(found.values(), key=lambda one: self._room(account, screen, one[1]))
        rng = np.random.default_rng([proposer.seed, len(history)])
        left = [text for text in account.curves.draws if text not in known]
        draws = json.loads(left[int(rng.integers(len(left)))])
        return draws, account.curves.index(draws)

    def _screen(self, account: Account) -> Screen:
        names = ("score", COST)
        return Screen(
            dict(zip(names, WAYS, strict=True)),
            dict(zip(names, account.curves.reference, strict=True)),
            front=[account.values(row) for row in account.finished],
            seen=[account.values(row, at) for row, at in account.reached.items()],
        )

    def _room(self, account: Account, screen: Screen, row: int | None) -> float:
        return float("-inf") if row is None else screen.room({COST: float(account.curves.cost_N[row])})

    def _hopeless(self, account: Account, row: int) -> bool:
        """A finished configuration holds the task's bound and costs no more."""
        bound = account.curves.bound
        if not self.prune or bound is None:
            return False
        done = account.curves.final(account.finished)
        return bool(np.any((done[:, 0] >= bound) & (done[:, 1] <= account.curves.cost_N[row])))

    def _promoted(self, account: Account, ends: list[int], *, closing: bool) -> int | None:
        standing = self._standings(account, ends)
        chosen = promotions(standing, WAYS, self.reduction, len(ends), closing=closing)
        return chosen[0][0] if chosen else None

    def _history(
        self, account: Account, proposed: list[tuple[dict[str, Any], int | None]], ends: list[int]
    ) -> list[Past]:
        early = None
        if self.learn:
            done = sum(at == ends[-1] for at in account.reached.values())
            early = evidence(self._standings(account, ends), done, self.population, len(ends))
        found = []
        for draws, row in proposed:
            if row is None:
                found.append(Past(draws, violation=1.0))
            elif early is not None:
                found.append(Past(draws, early.get(row)))
            elif account.reached.get(row) == ends[-1]:
                found.append(Past(draws, account.values(row)))
            else:
                found.append(Past(draws, running=row in account.reached))
        return found

    def _standings(self, account: Account, ends: list[int]) -> list[Standing]:
        return [
            Standing(row, rung, account.values(row, end), waiting=at == end)
            for row, at in account.reached.items()
            for rung, end in enumerate(ends)
            if at >= end
        ]


class _Trial:
    """What Ray's scheduler looks at in a trial."""

    def __init__(self, number: int) -> None:
        self.trial_id = str(number)


def ray_asha(account: Account, seed: int) -> None:
    """Ray Tune's own ASHA scheduler over random draws, on score and cost scaled by the table's own ranges, added."""
    from ray.tune.schedulers.async_hyperband import AsyncHyperBandScheduler

    curves = account.curves
    scale = float(curves.score_NC[:, -1].max()) - curves.chance
    spread = float(curves.cost_N.max() - curves.cost_N.min())
    order = np.random.default_rng(seed).permutation(len(curves.draws))
    steps = [round(27 * share) for share in curves.shares]
    scheduler = AsyncHyperBandScheduler("at", "value", "max", max_t=27, grace_period=3, reduction_factor=3)
    for row in (int(r) for r in order):
        trial: Any = _Trial(row)
        scheduler.on_trial_add(None, trial)  # type: ignore[arg-type]
        for checkpoint, at in enumerate(steps):
            if at not in (3, 9, 27):
                continue
            account.train(row, checkpoint)
            if account.won:
                return
            score, cost = account.values(row, checkpoint)
            value = (score - curves.chance) / scale - (cost - float(curves.cost_N.min())) / spread
            result = {"at": at, "value": value}
            if scheduler.on_trial_result(None, trial, result) == "STOP":  # type: ignore[arg-type]
                break


def replay(
    curves: Curves, search: Callable[[Account, int], None], seeds: range, share: float = 0.95
) -> Iterator[Account]:
    """One account for each seed, run until ``share`` of the table's hypervolume is reached or nothing is left."""
    goal = share * curves.whole()
    for seed in seeds:
        account = Account(curves, goal)
        search(account, seed)
        yield account
