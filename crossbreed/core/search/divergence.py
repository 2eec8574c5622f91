"""How often runs diverge, by architecture and by family: a recipe that breaks a family shows here, not in its mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crossbreed.core.search.statistics import Interval, wilson
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow, SeedRow

TRAINED = ("done", "off_budget")


@dataclass(frozen=True)
class Divergence:
    """Runs that diverged among those that trained and ended, with the 95% Wilson interval of the rate (None without any).

    A run that was pruned after a rung trained without diverging and counts; what failed for another reason does not.
    """

    diverged: int
    runs: int

    @property
    def rate(self) -> Interval | None:
        return wilson(self.diverged, self.runs)


def of_seeds(seeds: Iterable[SeedRow]) -> Divergence:
    """The rate among some runs."""
    found = list(seeds)
    diverged = sum(s.state == "diverged" for s in found)
    stayed = sum(s.state in TRAINED or (s.state == "pruned" and s.rungs_done > 0) for s in found)
    return Divergence(diverged, diverged + stayed)


def by_family(rows: Iterable[CandidateRow]) -> dict[str, Divergence]:
    """The rate of each family whose runs trained, the highest first."""
    seeds: dict[str, list[SeedRow]] = {}
    for row in rows:
        seeds.setdefault(row.family, []).extend(row.seeds)
    return _highest_first({family: of_seeds(runs) for family, runs in seeds.items()})


def in_study(repository: Repository, study_id: int) -> dict[str, Divergence]:
    """The same of all candidates of a study, counted by the database."""
    counts = repository.divergence(study_id)
    return _highest_first({family: Divergence(bad, bad + good) for family, (bad, good) in counts.items()})


def _highest_first(rates: dict[str, Divergence]) -> dict[str, Divergence]:
    trained = {family: rate for family, rate in rates.items() if rate.runs}
    return dict(sorted(trained.items(), key=lambda item: (-item[1].diverged / item[1].runs, item[0])))
