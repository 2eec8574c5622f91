"""Operating points: under whose decisions a model is judged or timed.

Their names are read by commands that only look at stored results, so torch is imported where tensors are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, get_args

from crossbreed.core import genome
from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.lab.records import Rates
from crossbreed.core.lab.text_schedule import GRAMMAR, TextSchedule

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from crossbreed.core.contracts.context import Recorder
    from crossbreed.core.contracts.task import Task
    from crossbreed.core.model.language_model import LanguageModel
    from crossbreed.core.model.routing import Site

FORCED_RATES = ("0", "0.1", "0.22", "0.4", "1")
"""Shares of tokens sent to the most expensive choice when a model is profiled before training."""
FITTED = "fitted:"
"""Begins the names of points at which a run is used with fitted routers, whose names follow."""
SHIFT = "shift"
"""Setting of a router that moves its threshold and no weight; routers that have it take part in ``threshold:SHIFT``."""
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
    ``TextSchedule``), other sites decide for themselves. ``threshold:SHIFT``: every router that has a threshold decides
    with it moved by so much, up for less work. ``depth:L``: stages whose repeats share weights end after L of them.

    The last two are other genomes with the same weights (see ``variant``), which decide for themselves. ``length:N``: the
    model decides, on texts N times as long as those it was trained on.
    """

    name: str
    rate: Fraction | None = None
    schedule: TextSchedule | None = None
    shift: float | None = None
    depth: int | None = None
    length: int | None = None

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
        if kind == "depth" and rest.isdecimal() and int(rest) >= 1:
            return OperatingPoint(f"depth:{int(rest)}", depth=int(rest))
        if kind == "length" and rest.isdecimal() and int(rest) >= 2:
            return OperatingPoint(f"length:{int(rest)}", length=int(rest))
        if kind == "threshold" and (shift := _finite(rest)):
            return OperatingPoint(f"threshold:{shift:+.12g}", shift=shift)
        try:
            value = Fraction(rest)
        except (ValueError, ZeroDivisionError):
            value = Fraction(-1)
        if kind != "forced" or not 0 <= value <= 1:
            raise ConfigError(
                f"unknown operating point {name!r}; it must be 'own', 'forced:' and a rate in [0, 1], 'threshold:' and a shift "
                f"other than 0, 'depth:' and repeats of at least 1, 'length:' and a multiple of at least 2, or 'schedule:' and {GRAMMAR}"
            )
        return OperatingPoint(name, value)

    def fits(self, architecture: Architecture, parts: Parts, tokens: int) -> bool:
        """Whether it says anything about a model of this architecture, trained on texts of ``tokens`` tokens."""
        if self.length is not None:
            limit = longest(architecture, parts)
            return limit is None or self.length * tokens <= limit.tokens
        if self.schedule is not None:
            return self.schedule.fits(genome.reader_names(architecture.stages))
        if self.rate is not None:
            return bool(architecture.routers())
        return self == OWN or self.variant(architecture, parts) != architecture

    def variant(self, architecture: Architecture, parts: Parts) -> Architecture:
        """The genome that a trained model's weights run as at this point; it may need fewer of them."""
        if self.shift is not None:
            routers = architecture.routers()
            return architecture.with_routers({n: self._shifted(r, parts) for n, r in routers.items()})
        if self.depth is not None:
            stages = tuple(self._cut(stage, parts) for stage in architecture.stages)
            return architecture.model_copy(update={"stages": stages})
        return architecture

    def task(self, task: Task) -> Task:
        """The task on which it is judged and timed. Raises ConfigError for one whose rows have one length alone."""
        return task if self.length is None else task.at_length(self.length * task.length)

    def model(self, trained: LanguageModel, parts: Parts, backend: str = "auto") -> LanguageModel:
        """A trained model as it runs at this point, on the same weights: itself unless the point is another genome."""
        architecture = self.variant(trained.architecture, parts)
        if architecture == trained.architecture:
            return trained
        from crossbreed.core.model.language_model import LanguageModel

        model = LanguageModel(architecture, parts, backend=backend, chosen=trained.chosen)
        weights = trained.state_dict()
        lacking = sorted(model.state_dict().keys() - weights.keys())
        if lacking:
            raise ConfigError(
                f"operating point {self.name!r} needs the tensor {lacking[0]!r}, which the model lacks"
            )
        # Assigned, not copied: the weights are in memory once.
        model.load_state_dict({name: weights[name] for name in model.state_dict()}, assign=True)
        return model.train(trained.training)

    def _shifted(self, router: genome.Router, parts: Parts) -> genome.Router:
        if SHIFT not in parts.descriptor("router", router.name).config.model_fields:
            return router
        moved = router.params.get(SHIFT, 0.0) + (self.shift or 0.0)
        return router.model_copy(update={"params": {**router.params, SHIFT: moved}})

    def _cut(self, stage: genome.Stage, parts: Parts) -> genome.Stage:
        shared = parts.descriptor("depth", stage.depth.name).shares_weights
        if self.depth is None or not shared or stage.depth.repeats <= self.depth:
            return stage
        depth = stage.depth.model_copy(update={"repeats": self.depth})
        # With one repeat nothing is left to decide.
        halt = None if self.depth == 1 else stage.halt
        return stage.model_copy(update={"depth": depth, "halt": halt})

    def check(self, modes: Sequence[str], length: int) -> None:
        """Raise ConfigError unless a model with these modes can run it on texts of ``length`` tokens."""
        self.check_modes(modes)
        if self.schedule is not None:
            self.schedule.at(length, modes)

    def check_modes(self, modes: Sequence[str]) -> None:
        """Raise ConfigError unless a model with these modes has every one that it schedules."""
        if self.schedule is None:
            return
        if not modes:
            raise ConfigError(
                f"operating point {self.name!r} schedules modes, but the architecture has no mode router"
            )
        self.schedule.check(modes)

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


class Limit(NamedTuple):
    """The longest text that a mixer can read, in tokens."""

    mixer: str
    tokens: int


def longest(architecture: Architecture, parts: Parts) -> Limit | None:
    """The tightest limit among a genome's mixers and readers, None where no text is too long."""
    names = {sub.mixer for stage in architecture.stages for block in stage.blocks for sub in block.sublayers}
    names |= set(genome.reader_names(architecture.stages))
    limits = [
        Limit(name, found)
        for name in sorted(names)
        if (found := parts.descriptor("mixer", name).capabilities.longest) is not None
    ]
    return min(limits, key=lambda limit: limit.tokens, default=None)


OWN = OperatingPoint("own")
FORCED = tuple(OperatingPoint.parse(f"forced:{rate}") for rate in FORCED_RATES)


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


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
