"""What the built-in spaces share: a menu of what is allowed, sizes to start from, labels, and completed starting points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from crossbreed.core.contracts.space import SearchSpace, Setting
from crossbreed.core.genome import Architecture, Block, Router, Sublayer
from crossbreed.search_spaces.drawing import completed
from crossbreed.search_spaces.families import family
from crossbreed.search_spaces.menu import Menu, menu

Point = dict[str, Any]


class BodySpace(SearchSpace):
    """A space over bodies of ``config.layers`` layers. Subclasses have a ``name``, ``propose`` and ``points``."""

    name: ClassVar[str]

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        # Axes of the mixers that a setting allowed, for labels: a genome alone does not say what its mixers mix.
        self._axes: dict[str, str] = {}

    def points(self, allowed: Menu, setting: Setting) -> Iterator[Point]:
        """Starting points, as far as they matter; what they leave open is completed."""
        raise NotImplementedError(f"{type(self).__name__} must define points(allowed, setting)")

    def starting_points(self, setting: Setting) -> list[Point]:
        repeats = max(2, self.config.layers)
        return [
            completed(self, point, setting, repeats) for point in self.points(self.menu(setting), setting)
        ]

    def family(self, architecture: Architecture) -> str:
        return family(architecture, self._axes)

    def menu(self, setting: Setting) -> Menu:
        """What the setting allows. Raises ConfigError when too little is left."""
        for name in setting.mixers:
            self._axes[name] = setting.parts.descriptor("mixer", name).capabilities.axis
        return menu(setting, self.name)

    def target(self, d_model: int, layers: int, repeats: int) -> Target:
        """Parameters to start from. ``config.layers`` Transformer layers of 4 D^2 and 8 D^2 are spread over the layers:
        a token uses them once, however often a layer runs, and what one run cannot use is stored."""
        share = self.config.layers / (layers * repeats)
        whole = 12 * d_model**2 * self.config.layers / layers
        sequence = 4 * d_model**2 * min(1.0, share)
        return Target(sequence, 8 * d_model**2 * share, whole - sequence)


class Target(NamedTuple):
    """Parameters that one run of a sequence mixer and of a channel mixer start from; stored: all of the channel mixer."""

    sequence: float
    channel_active: float
    channel_stored: float


def gated_layer(mixer: Sublayer, tail: tuple[Sublayer, ...], gate: Router | None) -> tuple[Block, ...]:
    """A sequence mixer and what follows it; a gate skips the mixer alone, as in AMOR."""
    if gate is None:
        return (Block(sublayers=(mixer, *tail)),)
    head = Block(sublayers=(mixer,), gate=gate)
    return (head, Block(sublayers=tail)) if tail else (head,)


def policies(setting: Setting, allowed: Menu) -> tuple[list[str], list[str]]:
    """Depth policies whose repeats have weights of their own, and those whose repeats share them."""
    shares = {p: bool(setting.parts.descriptor("depth", p).shares_weights) for p in allowed.depth}
    return [p for p in allowed.depth if not shares[p]], [p for p in allowed.depth if shares[p]]
