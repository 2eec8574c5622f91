"""Two candidates of a study on the seeds they share: the difference that is left when data and order are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import Candidate, Objectives
from crossbreed.core.search.statistics import MIN_SEEDS, Paired, holm, on_shared_seeds, paired

ALPHA = 0.05
"""A corrected p-value below this is called a difference."""


@dataclass(frozen=True)
class Comparison:
    """``first`` minus ``second`` in one objective, over the ``seeds`` both have.

    paired:    None where they share no seed with a value. corrected: Holm's p-value among all comparisons made together.
    direction: of the objective; ``better`` is the number of the better candidate, None where nothing can be said.
    """

    objective: str
    direction: str
    first: int
    second: int
    seeds: tuple[int, ...]
    paired: Paired | None
    corrected: float | None

    @property
    def better(self) -> int | None:
        if self.paired is None or self.corrected is None or self.corrected >= ALPHA:
            return None
        return self.first if (self.paired.mean > 0) == (self.direction == "max") else self.second

    @property
    def sentence(self) -> str:
        """What the numbers say."""
        a, b = f"#{self.first}", f"#{self.second}"
        if self.paired is None:
            return f"{a} and {b} share no seed: nothing can be said."
        if self.paired.interval is None:
            shared = f"{self.paired.pairs} shared seed{'s' if self.paired.pairs > 1 else ''}"
            return f"{a} and {b} have {shared}; an interval needs {MIN_SEEDS}, so nothing can be said yet."
        if self.better is None:
            return f"{a} and {b} show no difference over {self.paired.pairs} shared seeds."
        worse = self.second if self.better == self.first else self.first
        return f"#{self.better} is better than #{worse} over {self.paired.pairs} shared seeds."


def compare(candidates: Sequence[Candidate], objectives: Objectives) -> list[Comparison]:
    """All pairs of ``candidates`` in every measured objective, corrected together for their number."""
    found = [
        (name, a, b, tuple(sorted(a.by_seed[name].keys() & b.by_seed[name].keys())))
        for name in objectives.names
        if name not in QUANTITIES
        for a, b in combinations(candidates, 2)
    ]
    tests = [paired(on_shared_seeds(a.by_seed[name], b.by_seed[name])) for name, a, b, _ in found]
    known = [t.p for t in tests if t is not None and t.p is not None]
    corrected = iter(holm(known))
    return [
        Comparison(
            name,
            objectives.directions[name],
            a.row.number,
            b.row.number,
            seeds,
            test,
            next(corrected) if test is not None and test.p is not None else None,
        )
        for (name, a, b, seeds), test in zip(found, tests, strict=True)
    ]


def find(candidates: Sequence[Candidate], text: str) -> Candidate:
    """The candidate called ``text``: its number, with or without ``#``, or the beginning of its hash (4 digits or more).

    Raises ConfigError when there is none, or more than one.
    """
    number = text.removeprefix("#")
    by_number = [c for c in candidates if str(c.row.number) == number]
    by_hash = [c for c in candidates if len(text) >= 4 and c.row.hash.startswith(text.lower())]
    found = by_number or by_hash
    if len(found) != 1:
        what = "is not in this study" if not found else "fits several candidates; give more digits"
        raise ConfigError(
            f"candidate {text!r} {what}; name one by its number (0 to {max(c.row.number for c in candidates)}) or the "
            "beginning of its hash."
            if candidates
            else f"candidate {text!r} is not in this study, which has none."
        )
    return found[0]
