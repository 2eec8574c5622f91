"""The open space: every architecture of the other built-in spaces, under one sampler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

from crossbreed.core.contracts.space import Draw, Setting
from crossbreed.core.genome import Architecture, digest
from crossbreed.search_spaces.amor import Amor
from crossbreed.search_spaces.base import BodySpace, Point
from crossbreed.search_spaces.drawing import FirstChoice
from crossbreed.search_spaces.dreamer import Dreamer
from crossbreed.search_spaces.layer_hybrids import LayerHybrids
from crossbreed.search_spaces.oryx import Oryx

BODIES: tuple[type[BodySpace], ...] = (LayerHybrids, Amor, Oryx, Dreamer)


class Open(BodySpace):
    """Draws ``body``, one of the other spaces, then what that one draws, each name under the body's own.

    Starting points: ``config.starts`` of each body, the bodies by turns; of those that are one architecture, the first.
    """

    name = "open"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.bodies = {body.name: body(config) for body in BODIES}

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        # Asked first, so that a study that allows too little is refused before anything is drawn.
        self.menu(setting)
        body = draw.choose("body", tuple(self.bodies))
        return self.bodies[body].propose(_Under(draw, body), setting)

    def starting_points(self, setting: Setting) -> list[Point]:
        found: dict[str, Point] = {}
        for body, point in self._by_turns(setting):
            proposed = self.bodies[body].propose(FirstChoice(point), setting)
            named = {f"{body}.{name}": answer for name, answer in point.items()}
            found.setdefault(digest(proposed), {"body": body, **named})
        return list(found.values())

    def _by_turns(self, setting: Setting) -> Iterator[tuple[str, Point]]:
        columns = (
            [(name, point) for point in body.starting_points(setting)[: self.config.starts]]
            for name, body in self.bodies.items()
        )
        return (found for found in chain.from_iterable(zip_longest(*columns)) if found is not None)


@dataclass(frozen=True)
class _Under:
    """The draws of one body, each under its name."""

    draw: Draw
    body: str

    def choose(self, name: str, options: Sequence[str | int | float | bool]) -> Any:
        return self.draw.choose(f"{self.body}.{name}", options)

    def integer(self, name: str, low: int, high: int, step: int = 1) -> int:
        return self.draw.integer(f"{self.body}.{name}", low, high, step)

    def number(self, name: str, low: float, high: float, log: bool = False) -> float:
        return self.draw.number(f"{self.body}.{name}", low, high, log)
