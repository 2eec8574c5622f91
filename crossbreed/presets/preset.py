"""A preset: a named genome at one size, with the figures its source states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crossbreed.core.genome import Architecture


@dataclass(frozen=True)
class Published:
    """A figure that a source states.

    ``quantity``: one of a ledger's, or ``active_matrix_parameters``: what one token uses, small tensors left out.
    """

    quantity: str
    value: int
    source: str


@dataclass(frozen=True)
class Preset:
    """A published system or a rival, at one size.

    ``family`` groups sizes and variants of one structure. ``make`` builds the genome; ``build`` may change its vocabulary.
    """

    name: str
    family: str
    summary: str
    make: Callable[[], Architecture]
    published: tuple[Published, ...] = ()

    def build(self, vocab: int | None = None) -> Architecture:
        """The genome, before defaults are filled; ``vocab`` replaces the published vocabulary."""
        architecture = self.make()
        return architecture if vocab is None else architecture.model_copy(update={"vocab": vocab})
