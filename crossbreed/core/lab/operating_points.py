"""Operating points: under whose decisions a model is judged or timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import get_args

import torch
from torch import Tensor

from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.records import Rates
from crossbreed.core.model.routing import Site

FORCED_RATES = ("0", "0.1", "0.22", "0.4", "1")
"""Shares of tokens sent to the most expensive choice when a model is profiled before training."""
SITE_KINDS = get_args(SiteKind)


@dataclass(frozen=True)
class OperatingPoint:
    """``rate`` None: the model decides. Otherwise that share of tokens takes each site's most expensive choice, spread
    evenly over the text, and the others its cheapest (choice 0)."""

    name: str
    rate: Fraction | None = None

    @staticmethod
    def parse(name: str) -> OperatingPoint:
        """The point called ``"own"`` or ``"forced:RATE"`` with RATE in [0, 1]; ConfigError otherwise."""
        kind, _, rate = name.partition(":")
        if name == "own":
            return OWN
        try:
            value = Fraction(rate)
        except (ValueError, ZeroDivisionError):
            value = Fraction(-1)
        if kind != "forced" or not 0 <= value <= 1:
            raise ConfigError(
                f"unknown operating point {name!r}; it must be 'own' or 'forced:' and a rate in [0, 1]"
            )
        return OperatingPoint(name, value)

    def forced(
        self,
        sites: Mapping[str, Site],
        shape: tuple[int, int],
        *,
        first: int = 0,
        device: torch.device | str | None = None,
    ) -> dict[str, Tensor]:
        """Forced choices for a piece of B rows of T tokens whose first token is number ``first`` of the text.

        Every row has the same pattern, so that rows of one length do the same work. {} at the model's own decisions.
        """
        if self.rate is None:
            return {}
        B, T = shape
        on_T = spread(self.rate, first, T, device)
        return {name: (on_T * (site.choices - 1)).expand(B, T) for name, site in sites.items()}


OWN = OperatingPoint("own")
FORCED = tuple(OperatingPoint.parse(f"forced:{rate}") for rate in FORCED_RATES)


def spread(rate: Fraction, first: int, count: int, device: torch.device | str | None = None) -> Tensor:
    """int64 ones and zeros for tokens ``first ... first + count - 1``, ones evenly spread.

    Among the first n tokens of a text, exactly round(n * rate) are ones (Bresenham's line in integers), so that the
    realised share is the nearest possible one at every length.
    """
    p, q = rate.numerator, rate.denominator
    n_T = torch.arange(first, first + count + 1, dtype=torch.int64, device=device)
    line_T = (2 * n_T * p + q) // (2 * q)
    return line_T[1:] - line_T[:-1]


def realised_rates(recorders: Iterable[Recorder]) -> Rates:
    """Share of the asked tokens per choice at every site that decided, keyed with depths.

    A site that was reached but asked about no token (all of them were halted before) is given to choice 0: nothing ran.
    """
    counts: dict[str, Tensor] = {}
    for recorder in recorders:
        for site, statistics in recorder.records:
            if site.rpartition(".")[2] in SITE_KINDS and "counts" in statistics:
                seen_N = statistics["counts"]
                counts[site] = counts[site] + seen_N if site in counts else seen_N
    rates = {}
    for site, counts_N in sorted(counts.items()):
        numbers = counts_N.tolist()
        asked = sum(numbers)
        rates[site] = tuple(n / asked for n in numbers) if asked else (1.0,) + (0.0,) * (len(numbers) - 1)
    return rates
