"""Which runs an experiment still needs: its arms brought to one budget, then tuned alike, then run on shared seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crossbreed.claims.claim import Arm, Experiment, digest_of
from crossbreed.claims.measures import OWN, rate
from crossbreed.claims.record import REPORT, TUNE, Record
from crossbreed.core import genome
from crossbreed.core.budget.budget import Budget
from crossbreed.core.budget.matcher import certify, match
from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.task import Task
from crossbreed.core.errors import ConfigError, InfeasibleBudget
from crossbreed.core.genome import Architecture, Router
from crossbreed.core.host import Registry
from crossbreed.core.model.legality import check_training

TUNE_SEED = 1000
"""Seed of tuning runs: its data and weights are in no run that is reported."""
FIGURES = (
    "parameters",
    "active_parameters",
    "training_flops_per_token",
    "prefill_flops_per_token",
    "decode_flops_per_token",
    "state_bytes",
    "memory_bytes",
)
RATED = {"segment_random": "probability", "learned": "target_rate"}
"""Routers that are told their rate, and the setting that says it."""


@dataclass(frozen=True)
class Unit:
    """One run to be made."""

    experiment: Experiment
    arm: Arm
    matched: Mapping[str, Any]
    budget: Budget
    seed: int
    lr: float
    role: str


def setting_of(experiment: Experiment) -> str:
    """SHA-256 (hex) of everything that runs of an experiment must share to stand beside each other."""
    arms = [
        [a.name, a.architecture.model_dump(mode="json"), dict(a.points), a.rate_of, a.like]
        for a in experiment.arms
    ]
    return digest_of([experiment.task, arms, experiment.budget, experiment.recipe, experiment.lrs])


class Planner:
    """One experiment against a record. Matches each arm once, when what it depends on is there."""

    def __init__(self, experiment: Experiment, registry: Registry, record: Record) -> None:
        self.experiment, self.registry, self.record = experiment, registry, record
        self.setting = setting_of(experiment)
        task = experiment.task
        config = registry.config("task", task["name"], task["params"])
        self.task: Task = registry.factory("task", task["name"])(config)
        self.cost: CostModel = registry.factory("cost", "analytic")(
            registry.config("cost", "analytic", {}), registry
        )
        self._matched: dict[str, dict[str, Any]] = {}
        self.budget = self._budget()

    def units(self, seeds: int) -> list[Unit]:
        """Runs that are missing and can be made now; [] when all are there. All tuning comes first, then all arms of a seed
        before the next seed."""
        arms = [(arm, made) for arm in self.experiment.arms if (made := self.matched(arm)) is not None]
        tuning = [
            Unit(self.experiment, arm, made, self.budget, TUNE_SEED, lr, TUNE)
            for arm, made in arms
            for lr in self.experiment.lrs
            if not self._has(arm, TUNE, TUNE_SEED, lr)
        ]
        if tuning:
            return tuning
        return [
            Unit(self.experiment, arm, made, self.budget, seed, lr, REPORT)
            for seed in range(seeds)
            for arm, made in arms
            if (lr := self.chosen_lr(arm)) is not None and not self._has(arm, REPORT, seed, lr)
        ]

    def chosen_lr(self, arm: Arm) -> float | None:
        return chosen_lr(self.record, self.experiment, arm.name, self.setting, self.task.score.direction)

    def matched(self, arm: Arm) -> dict[str, Any] | None:
        """The arm inside the budget with its certificate, None while it waits for another arm's rate.

        Raises InfeasibleBudget where nothing meets the budget, ConfigError where the record has it otherwise.
        """
        if arm.name not in self._matched:
            rate_given = None
            if arm.rate_of is not None:
                rate_given = self._realised(self.experiment.arm(arm.rate_of))
                if rate_given is None:
                    return None
            self._matched[arm.name] = self._match(arm, rate_given)
        return self._matched[arm.name]

    def _match(self, arm: Arm, rate_given: float | None) -> dict[str, Any]:
        where = f"{self.experiment.name}/{arm.name}"
        architecture = self._sized(arm.architecture)
        if rate_given is not None:
            architecture = at_rate(architecture, rate_given)
        if arm.like is not None:
            like = self.matched(self.experiment.arm(arm.like))
            assert like is not None
            routers = self.registry.canonical(architecture).routers()
            architecture = Architecture.model_validate(like["genome"]).with_routers(routers)
            certificate = certify(architecture, self.budget, self.cost)
        else:
            found = match(architecture, self.budget, self.registry, self.cost)
            architecture, certificate = found.architecture, found.certificate
        if not certificate.feasible:
            raise InfeasibleBudget(f"arm {where} is outside the budget: {certificate.reason}")
        check_training(architecture, self.registry)
        ledger = self.cost.estimate(architecture, self.budget.shape.as_shape())
        made: dict[str, Any] = {
            "setting": self.setting,
            "hash": genome.digest(architecture),
            "rate": rate_given,
            "figures": {name: getattr(ledger, name) for name in FIGURES},
            "certificate": certificate.model_dump(mode="json"),
            "genome": architecture.model_dump(mode="json"),
        }
        kept = self.record.arms.get(where)
        if kept is not None and kept["setting"] == self.setting and kept["hash"] != made["hash"]:
            raise ConfigError(
                f"arm {where} was {kept['hash'][:12]} when its runs were recorded and is {made['hash'][:12]} now, though its "
                "declaration is the same: the matcher or a part's defaults have changed. Give another --record."
            )
        self.record.arms[where] = made
        return made

    def _budget(self) -> Budget:
        shape = {"tokens": self.task.length, "batch": self.experiment.recipe.get("batch", 1)}
        given = Budget.read({"shape": shape, **self.experiment.budget}, f"budget of {self.experiment.name}")
        reference = self.registry.canonical(self._sized(self.experiment.arms[0].architecture))
        return given.at_reference(self.cost.estimate(reference, given.shape.as_shape()))

    def _sized(self, architecture: Architecture) -> Architecture:
        return architecture.model_copy(update={"vocab": self.task.vocab})

    def _realised(self, arm: Arm) -> float | None:
        """Rate of an arm's chosen tuning run, in hundredths; None until it is there."""
        lr = self.chosen_lr(arm)
        runs = [
            r for r in self.record.of(self.experiment.name, self.setting, arm.name, TUNE) if r["lr"] == lr
        ]
        found = rate(runs[0]["points"][OWN]["rates"]) if runs and runs[0]["state"] == "done" else None
        return None if found is None else round(found, 2)

    def _has(self, arm: Arm, role: str, seed: int, lr: float) -> bool:
        runs = self.record.of(self.experiment.name, self.setting, arm.name, role)
        return any((run["seed"], run["lr"]) == (seed, lr) for run in runs)


def chosen_lr(
    record: Record, experiment: Experiment, arm: str, setting: str, direction: str = "max"
) -> float | None:
    """The learning rate with the best score of an arm's tuning runs, the smaller of equal ones; None until all were tried.

    Where every one diverged, the smallest.
    """
    runs = record.of(experiment.name, setting, arm, TUNE)
    if {run["lr"] for run in runs} < set(experiment.lrs):
        return None
    sign = 1 if direction == "max" else -1
    done = [(-sign * run["points"][OWN]["score"], run["lr"]) for run in runs if run["state"] == "done"]
    return min(done)[1] if done else min(experiment.lrs)


def at_rate(architecture: Architecture, share: float) -> Architecture:
    """The architecture with every router that is told its rate told this one."""

    def told(router: Router) -> Router:
        setting = RATED.get(router.name)
        return (
            router
            if setting is None
            else router.model_copy(update={"params": {**router.params, setting: share}})
        )

    return architecture.with_routers({site: told(router) for site, router in architecture.routers().items()})


def describe(unit: Unit) -> dict[str, Any]:
    """What identifies a unit, as its run's data begins."""
    return {
        "experiment": unit.experiment.name,
        "setting": setting_of(unit.experiment),
        "arm": unit.arm.name,
        "hash": unit.matched["hash"],
        "seed": unit.seed,
        "lr": unit.lr,
        "role": unit.role,
    }
