"""A search space under check: what it proposes in studies of several sizes that allow everything capable."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crossbreed.core.budget.dimensions import layout
from crossbreed.core.conformance.rule import Broken
from crossbreed.core.conformance.subject import Subject
from crossbreed.core.contracts.space import SearchSpace, Setting
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, DepthPolicy
from crossbreed.core.host import Registry
from crossbreed.core.model.legality import check, check_training
from crossbreed.core.search.draws import Domain, Grid, Options, Recorder

STUDIES = ((32, 64), (5, 16), (2048, 96), (128, 512))
"""(length, d_model) of the studies that proposals are for, by turns."""


@dataclass
class RandomDraw(Recorder):
    """Even draws from a seed of its own."""

    seed: int = 0
    generator: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.generator = random.Random(self.seed)

    def value(self, name: str, domain: Domain) -> Any:
        if isinstance(domain, Options):
            return json.loads(self.generator.choice(domain.texts))
        if isinstance(domain, Grid):
            return self.generator.randrange(domain.low, domain.high + 1, domain.step)
        return self.generator.uniform(domain.low, domain.high)


class SpaceSubject(Subject):
    """A registered search space."""

    kind = "space"

    def space(self, settings: Mapping[str, Any]) -> SearchSpace:
        """A space of its own."""
        made: SearchSpace = self.registry.factory("space", self.name)(self.config(settings))
        return made

    def setting(self, number: int, parts: Registry | None = None) -> Setting:
        """What study ``number`` is about; it allows every part that a search may propose."""
        parts = self.registry if parts is None else parts
        length, d_model = STUDIES[number % len(STUDIES)]
        return Setting(
            vocab=64,
            length=length,
            d_model=d_model,
            mixers=tuple(m for m in parts.names("mixer") if parts.descriptor("mixer", m).capabilities.causal),
            routers=tuple(
                r for r in parts.names("router") if parts.descriptor("router", r).capabilities.searchable
            ),
            depth=tuple(parts.names("depth")),
            parts=parts,
        )


def legal(architecture: Architecture, setting: Setting, what: str) -> Architecture:
    """Its canonical form. Broken where it cannot be built or trained, or is not what the study is about."""
    parts: Any = setting.parts
    if architecture.vocab != setting.vocab or architecture.d_model != setting.d_model:
        raise Broken(
            f"{what} has vocabulary {architecture.vocab} and d_model {architecture.d_model}, "
            f"the study {setting.vocab} and {setting.d_model}"
        )
    foreign = sorted(_names(architecture) - {*setting.mixers, *setting.routers, *setting.depth})
    if foreign:
        raise Broken(f"{what} uses {', '.join(foreign)}, which the study does not allow")
    try:
        check(architecture, parts)
        check_training(architecture, parts)
    except ConfigError as error:
        raise Broken(f"{what} is not legal: {error}") from error
    made: Architecture = parts.canonical(architecture)
    return made


def moved(architecture: Architecture, parts: Registry) -> list[Architecture]:
    """What a matcher may make of it: every free dimension at its smallest, and at its largest value."""
    found = layout(architecture, parts)
    ends = [tuple(d.grid[end] for d in found.dimensions) for end in (0, -1)]
    return [found.at(point) for point in ends]


def _names(architecture: Architecture) -> set[str]:
    """Of all mixers, readers, routers and depth policies; the genome's own default, blocks that run once, is no choice."""
    routers = [architecture.mode_router, *(stage.halt for stage in architecture.stages)]
    routers += [block.gate for stage in architecture.stages for block in stage.blocks]
    readers = [r for _, sub in architecture.sublayers() for r in sub.params.get("readers") or ()]
    return {
        *(sub.mixer for _, sub in architecture.sublayers()),
        *(r if isinstance(r, str) else str(r["name"]) for r in readers),
        *(stage.depth.name for stage in architecture.stages if stage.depth != DepthPolicy()),
        *(router.name for router in routers if router is not None),
    }
