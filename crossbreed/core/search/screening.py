"""Screening: what a candidate costs is known before it is trained, so of several proposals the most promising one is kept.

By the ledger its costs are exact; what it will score, and how fast it will be, is not known. So it is taken to be as good
in those as the best that the study has seen, and what counts is the room its costs leave: the hypervolume it would then
add to the front (optimism under uncertainty, with the certain objectives held at their values).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.front import Direction, hypervolume


@dataclass(frozen=True)
class Screen:
    """What proposals are compared by.

    directions: objective -> which values are better.
    reference:  objective -> where hypervolume is measured from.
    front:      values of the front's members, in the order of ``directions``.
    seen:       values that anybody has reached so far, of whole runs or of rungs, in that order; NaN where not known.
    """

    directions: Mapping[str, Direction]
    reference: Mapping[str, float]
    front: Sequence[Sequence[float]] = ()
    seen: Sequence[Sequence[float]] = ()

    @property
    def certain(self) -> list[str]:
        """The objectives that are known before training; without one, all proposals are alike."""
        return [name for name in self.directions if name in QUANTITIES]

    def room(self, costs: Mapping[str, float]) -> float:
        """Hypervolume that a candidate of these certain values would add, were it as good as the best seen in all else.

        An objective that nobody has a value in yet is left out of the volume.
        """
        hoped = {name: self._hoped(place, name, costs) for place, name in enumerate(self.directions)}
        known = [place for place, value in enumerate(hoped.values()) if math.isfinite(value)]
        names = [list(self.directions)[place] for place in known]
        ways = [self.directions[name] for name in names]
        reference = [self.reference[name] for name in names]
        front = [[member[place] for place in known] for member in self.front]
        mine = [hoped[name] for name in names]
        return hypervolume([*front, mine], ways, reference) - hypervolume(front, ways, reference)

    def _hoped(self, place: int, name: str, costs: Mapping[str, float]) -> float:
        if name in costs:
            return costs[name]
        values = [row[place] for row in self.seen if math.isfinite(row[place])]
        if not values:
            return math.nan
        return max(values) if self.directions[name] == "max" else min(values)
