"""Operating points: under whose decisions a model is judged or timed.

Their names are read by commands that only look at stored results, so torch is imported where tensors are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, get_args

from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.records import Rates
from crossbreed.core.lab.text_schedule import GRAMMAR, TextSchedule

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from crossbreed.core.contracts.context import Recorder
    from crossbreed.core.model.routing import Site

FORCED_RATES = ("0", "0.1", "0.22", "0.4", "1")
"""Shares of tokens sent to the most expensive choice when a model is profiled before training."""
FITTED = "fitted:"
"""Begins the names of points at which a run is used with fitted routers, whose names follow."""
SITE_KINDS = get_args(SiteKind)


@dataclass(frozen=True)
class Stretch:
    """Where forced tokens lie: T of them in each of B rows, from position ``first`` of texts of ``length`` tokens.

    ``number``: of the first one among the tokens over which a rate is spread; its position unless given.
    """

    rows: int
    tokens: int
    length: int
    first: int = 0
    number: int | None = None


@dataclass(frozen=True)
class OperatingPoint:
    """One way to run a trained model; stored and asked for by its name.

    ``own``: the model decides. ``forced:RATE``: that share of tokens takes each site's most expensive choice, spread
    evenly over the text, and the others its cheapest (choice 0). ``schedule:SWITCHES``: the mode follows a schedule (see
    ``TextSchedule``), other sites decide for themselves.
    """

    name: str
    rate: Fraction | None = None
    schedule: TextSchedule | None = None

    @staticmethod
    def parse(name: str) -> OperatingPoint:
        """The point of that name; ConfigError otherwise. Spaces do not count."""
        name = "".join(name.split())
        kind, _, rest = name.partition(":")
        if name == "own":
            return OWN
        if kind == "schedule":
            schedule = TextSchedule.parse(rest)
            return OperatingPoint(f"schedule:{schedule}", schedule=schedule)
        try:
            value = Fraction(rest)
        except (ValueError, ZeroDivisionError):
            value = Fraction(-1)
        if kind != "forced" or not 0 <= value <= 1:
            raise ConfigError(
                f"unknown operating point {name!r}; it must be 'own', 'forced:' and a rate in [0, 1], or 'schedule:' and {GRAMMAR}"
            )
        return OperatingPoint(name, value)

    def fits(self, *, routed: bool, modes: Sequence[str]) -> bool:
        """Whether it says anything about a model that has routed sites or not, and these modes."""
        if self.schedule is not None:
            return self.schedule.fits(modes)
        return routed or self.rate is None

    def check(self, modes: Sequence[str], length: int) -> None:
        """Raise ConfigError unless a model with these modes can run it on texts of ``length`` tokens."""
        if self.schedule is None:
            return
        if not modes:
            raise ConfigError(
                f"operating point {self.name!r} schedules modes, but the architecture has no mode router"
            )
        self.schedule.at(length, modes)

    def forced(
        self, sites: Mapping[str, Site], stretch: Stretch, *, device: torch.device | str | None = None
    ) -> dict[str, Tensor]:
        """Forced choices for a stretch of text, by site; {} at the model's own decisions.

        Every row has the same pattern, so that rows of one length do the same work.
        """
        B, T = stretch.rows, stretch.tokens
        if self.schedule is not None:
            mode = sites.get("mode")
            modes = () if mode is None else mode.names
            self.check(modes, stretch.length)
            import torch

            positions_T = torch.arange(stretch.first, stretch.first + T, device=device)
            return {"mode": self.schedule.at(stretch.length, modes).choices_at(positions_T).expand(B, T)}
        if self.rate is None:
            return {}
        number = stretch.first if stretch.number is None else stretch.number
        on_T = spread(self.rate, number, T, device)
        return {name: (on_T * (site.choices - 1)).expand(B, T) for name, site in sites.items()}


OWN = OperatingPoint("own")
FORCED = tuple(OperatingPoint.parse(f"forced:{rate}") for rate in FORCED_RATES)


def spread(rate: Fraction, first: int, count: int, device: torch.device | str | None = None) -> Tensor:
    """int64 ones and zeros for tokens ``first ... first + count - 1``, ones evenly spread.

    Among the first n tokens of a text, exactly round(n * rate) are ones (Bresenham's line in integers), so that the
    realised share is the nearest possible one at every length.
    """
    import torch

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
    return {site: realised_shares(counts_N.tolist()) for site, counts_N in sorted(counts.items())}


def realised_shares(counts: Sequence[int]) -> tuple[float, ...]:
    """Share of each choice among asked tokens; choice 0's is 1 where none was asked."""
    asked = sum(counts)
    return tuple(n / asked for n in counts) if asked else (1.0,) + (0.0,) * (len(counts) - 1)
