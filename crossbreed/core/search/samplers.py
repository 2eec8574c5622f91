"""Samplers by name: Optuna's for those that learn or spread, and lists for those that enumerate."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import (
    BaseSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)

from crossbreed.core.errors import UnknownName
from crossbreed.core.search.draws import Domain, Grid, Options

Build = Callable[[int, int], BaseSampler]
"""From a seed and a population."""


@dataclass(frozen=True)
class Sampler:
    """How a name proposes.

    build:       Optuna's sampler, or None where draws are enumerated or listed.
    use:         what it does with several objectives, budgets and names asked only sometimes, in a sentence.
    spreads:     proposal n is a point of a fixed sequence: the study's history only says which is next.
    """

    name: str
    use: str
    build: Build | None = None
    spreads: bool = False


def _gp(seed: int, population: int) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=population, warn_independent_sampling=False)


@contextmanager
def _announced() -> Iterator[None]:
    """Some of Optuna's samplers announce that they are experimental; what is promised here is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


class Sequence(QMCSampler):
    """A point of one scrambled Sobol sequence, chosen by its place: Optuna counts within a study object, and ours are
    rebuilt for each proposal."""

    def __init__(self, seed: int, place: int) -> None:
        with _announced():
            super().__init__(seed=seed, scramble=True, warn_independent_sampling=False)
        self._place = place

    def _find_sample_id(self, study: optuna.Study, search_space: dict[str, BaseDistribution]) -> int:
        return self._place


SAMPLERS: Mapping[str, Sampler] = {
    s.name: s
    for s in (
        Sampler(
            "tpe",
            "Tree-structured Parzen estimators, for several objectives and budgets; each name is modelled by itself, "
            "names asked only sometimes included.",
            lambda seed, population: TPESampler(seed=seed, n_startup_trials=population),
        ),
        Sampler(
            "nsga2",
            "A genetic algorithm for several objectives by non-dominated rank and crowding, feasible candidates first; "
            "names that not every candidate has are drawn at random.",
            lambda seed, population: NSGAIISampler(seed=seed, population_size=population),
        ),
        Sampler(
            "nsga3",
            "As nsga2, with reference points instead of crowding: meant for three objectives and more.",
            lambda seed, population: NSGAIIISampler(seed=seed, population_size=population),
        ),
        Sampler(
            "gp",
            "Gaussian processes with expected hypervolume improvement, for several objectives and budgets; names that "
            "not every candidate has are drawn at random. Strong on few trials, slow beyond some hundreds.",
            _gp,
        ),
        Sampler(
            "random",
            "Independent draws; it looks neither at objectives nor at budgets.",
            lambda seed, population: RandomSampler(seed=seed),
        ),
        Sampler(
            "quasi_random",
            "A scrambled Sobol sequence over all names known so far, spread more evenly than random draws; it looks "
            "neither at objectives nor at budgets, and a draw of a name that is not asked is left unused.",
            lambda seed, population: Sequence(seed, 0),
            spreads=True,
        ),
        Sampler(
            "grid",
            "Every legal draw of the space once, the name asked last varying fastest, real ranges in 5 steps; it looks "
            "neither at objectives nor at budgets and ends when the grid does.",
        ),
        Sampler(
            "list",
            "The draws or genomes of search.list in their order, without the space's starting points; it ends with "
            "the list.",
        ),
    )
}


def known(name: str) -> Sampler:
    """The sampler of that name. Raises UnknownName, naming the nearest."""
    if name not in SAMPLERS:
        raise UnknownName("sampler", name, SAMPLERS)
    return SAMPLERS[name]


def build(name: str, seed: int, population: int) -> BaseSampler:
    """Optuna's sampler of that name. Raises ValueError for one that enumerates."""
    make = known(name).build
    if make is None:
        raise ValueError(f"sampler {name!r} enumerates; it has no model to build")
    with _announced():
        return make(seed, population)


def distribution(domain: Domain) -> BaseDistribution:
    """What Optuna samples a domain from; options are their JSON texts."""
    if isinstance(domain, Options):
        return CategoricalDistribution(domain.texts)
    if isinstance(domain, Grid):
        return IntDistribution(domain.low, domain.high, step=domain.step)
    return FloatDistribution(domain.low, domain.high, log=domain.log)


def encoded(domain: Domain, value: Any) -> Any:
    """A value as Optuna stores it in ``distribution(domain)``."""
    return json.dumps(value) if isinstance(domain, Options) else value
