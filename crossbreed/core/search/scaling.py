"""Scaling laws: loss as a floor and a power of the size, L(N) = E + A / N^alpha, fitted to measured runs.

Huber loss of residuals in log space, summed over runs, by L-BFGS from a grid of starts (Hoffmann et al. 2022, appendix D.3). Other
ways are known to fail without an error: least squares from one start ends anywhere, and a mean in place of the sum is so small
that the optimiser's tolerance is met before it has begun (allenai/OLMo-core#554, marin-community/marin#749).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crossbreed.core.errors import ConfigError

Floats = NDArray[np.float64]

DELTA = 1e-3
"""Residuals in log space beyond which a run pulls by a constant force, so that an odd one does not decide the fit."""
LEAST_SIZES = 4
"""A law has three numbers: with three sizes any would fit."""
FLOORS = (0.02, 0.3, 0.6, 0.9, 0.99)
"""Starts: the floor as a share of the smallest loss."""
EXPONENTS = (0.05, 0.15, 0.3, 0.6, 1.2, 2.4)
"""Starts: the exponent."""
AMOUNTS = (-1.0, 0.0, 1.0)
"""Starts: the power's amount at the middle size, as natural logarithm beside what the data leave above the floor there."""
LOWEST_FLOOR, STEEPEST = 15.0, 10.0
"""Bounds: of the floor, in nats of its logarithm below the smallest loss, where it is nothing; of the exponent."""
EDGE = 1e-3
"""How near a bound a fitted number says nothing but that it lies there."""
SAME = 1e-6
"""How much larger, relatively, the objective of a start that found the same law may be."""


class Law(NamedTuple):
    """loss = floor + amount / size^exponent."""

    floor: float
    amount: float
    exponent: float

    def at(self, size: float) -> float:
        """The loss at a size."""
        return self.floor + self.amount * math.pow(size, -self.exponent)

    def __str__(self) -> str:
        return f"{self.floor:.4g} + {self.amount:.4g} / N^{self.exponent:.4g}"


@dataclass(frozen=True)
class Fit:
    """objective: sum of Huber losses of log residuals, in units of DELTA squared. agreeing: starts of ``starts`` that found it.

    spread: of a run about the law in log space, with as many degrees of freedom as runs beyond three (``degrees``). edges:
    numbers of the law that lie at a bound and are not told from it.
    """

    law: Law
    objective: float
    spread: float
    degrees: int
    starts: int
    agreeing: int
    edges: tuple[str, ...] = ()


class Start(NamedTuple):
    """Natural logarithms of the floor and of the power at the middle size, and the exponent."""

    floor: float
    amount: float
    exponent: float


def fit(sizes: Sequence[float], losses: Sequence[float], starts: Iterable[Start] | None = None) -> Fit:
    """The law of runs of ``sizes`` with ``losses``, the best of those that all starts find.

    Raises ConfigError for fewer than LEAST_SIZES different sizes, and for a size or a loss that is not positive.
    """
    data = _Data.of(sizes, losses)
    begun = list(data.starts() if starts is None else starts)
    ends = [data.descend(start) for start in begun]
    best = min(ends, key=lambda end: end[0])
    agreeing = sum(end[0] <= best[0] * (1 + SAME) + SAME for end in ends)
    residuals_n = data.residuals(best[1])
    degrees = len(residuals_n) - 3
    spread = math.sqrt(float((residuals_n**2).sum()) / degrees) if degrees else math.nan
    return Fit(data.law(best[1]), best[0], spread, degrees, len(begun), agreeing, data.edges(best[1]))


def resample(
    found: Fit, sizes: Sequence[float], losses: Sequence[float], *, count: int, seed: int = 0
) -> list[Law]:
    """Laws of ``count`` data sets as these might have come out: the fitted law with noise of the runs' own spread.

    The spread is itself uncertain with few runs, so that every data set draws its own (from its chi-squared distribution with
    the fit's degrees of freedom): runs resampled with replacement would often leave fewer sizes than a law takes. Raises ConfigError where no run is left to tell a spread by.
    """
    if found.degrees < 1:
        raise ConfigError(
            "an interval needs more runs than the three numbers of a law; there is one size each"
        )
    random = np.random.default_rng(seed)
    data = _Data.of(sizes, losses)
    begun = data.start_of(found.law)
    # From a bound nothing leads away; elsewhere the law is near, and no other start ends lower.
    starts = [begun, *(data.starts(FLOORS[1::2], EXPONENTS[2::2], AMOUNTS[1:2]) if found.edges else ())]
    laws = []
    for _ in range(count):
        spread = found.spread * math.sqrt(found.degrees / random.chisquare(found.degrees))
        noise_n = random.normal(0.0, spread, len(data.y_n))
        drawn = _Data(data.x_n, data.predicted(np.array(begun)) + noise_n, data.middle)
        laws.append(drawn.law(min((drawn.descend(start) for start in starts), key=lambda end: end[0])[1]))
    return laws


def runs_at(found: Fit, laws: Sequence[Law], size: float, *, seed: int = 0) -> list[float]:
    """Losses of one new run at a size, one for each law of ``resample``: the law there with a run's noise."""
    random = np.random.default_rng(seed)
    noise = found.spread * random.standard_t(found.degrees, len(laws))
    return [law.at(size) * math.exp(n) for law, n in zip(laws, noise, strict=True)]


def percentiles(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The central interval that holds a share ``level`` of the values."""
    tail = 50 * (1 - level)
    low, high = np.percentile(np.asarray(values), [tail, 100 - tail])
    return float(low), float(high)


@dataclass(frozen=True)
class _Data:
    """Runs in log space. x_n: sizes, from the middle of them (``middle``), so that floor, amount and exponent are told apart
    as well as the data allow. y_n: losses."""

    x_n: Floats
    y_n: Floats
    middle: float

    @staticmethod
    def of(sizes: Sequence[float], losses: Sequence[float]) -> _Data:
        for what, values in (("size", sizes), ("loss", losses)):
            bad = [v for v in values if not (math.isfinite(v) and v > 0)]
            if bad:
                raise ConfigError(
                    f"{what} {bad[0]} is not a finite number above 0; a scaling law is of logarithms"
                )
        different = len(set(sizes))
        if different < LEAST_SIZES:
            raise ConfigError(
                f"{different} different sizes are too few for a scaling law; its three numbers take {LEAST_SIZES} at least"
            )
        x_n, y_n = np.log(np.asarray(sizes, dtype=np.float64)), np.log(np.asarray(losses, dtype=np.float64))
        middle = float(x_n.mean())
        return _Data(x_n - middle, y_n, middle)

    def starts(
        self,
        floors: Sequence[float] = FLOORS,
        exponents: Sequence[float] = EXPONENTS,
        amounts: Sequence[float] = AMOUNTS,
    ) -> Iterable[Start]:
        smallest = float(self.y_n.min())
        for share, exponent, change in product(floors, exponents, amounts):
            floor = smallest + math.log(share)
            above = float(np.exp(self.y_n).mean()) - math.exp(floor)
            yield Start(floor, math.log(above) + change, exponent)

    def start_of(self, law: Law) -> Start:
        amount = math.log(law.amount) - law.exponent * self.middle
        return Start(math.log(max(law.floor, 1e-300)), amount, law.exponent)

    def predicted(self, theta: Floats) -> Floats:
        """Log of the law at every run."""
        found: Floats = np.logaddexp(theta[0], theta[1] - theta[2] * self.x_n)
        return found

    def residuals(self, theta: Floats) -> Floats:
        return self.predicted(theta) - self.y_n

    def descend(self, start: Start) -> tuple[float, Floats]:
        """(objective, place) where L-BFGS ends."""
        bounds = self._bounds()
        begin = [min(max(value, low), high) for value, (low, high) in zip(start, bounds, strict=True)]
        end = minimize(
            self._objective,
            begin,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-12, "gtol": 1e-9, "maxls": 60},
        )
        return float(end.fun), np.asarray(end.x)

    def law(self, theta: Floats) -> Law:
        floor, amount, exponent = (float(value) for value in theta)
        return Law(math.exp(floor), math.exp(amount + exponent * self.middle), exponent)

    def edges(self, theta: Floats) -> tuple[str, ...]:
        (lowest, _), _, (flattest, steepest) = self._bounds()
        found = []
        if theta[0] <= lowest + 1 or self._floor_is_nothing(theta):
            found.append("floor")
        if theta[2] >= steepest - EDGE or theta[2] <= flattest + EDGE:
            found.append("exponent")
        return tuple(found)

    def _floor_is_nothing(self, theta: Floats) -> bool:
        return bool(math.exp(theta[0] - self.y_n.min()) < EDGE)

    def _bounds(self) -> list[tuple[float, float]]:
        smallest, largest = float(self.y_n.min()), float(self.y_n.max())
        return [(smallest - LOWEST_FLOOR, largest), (smallest - 40.0, largest + 40.0), (EDGE, STEEPEST)]

    def _objective(self, theta: Floats) -> tuple[float, Floats]:
        """In units of DELTA squared, of the order of the runs' number, so that tolerances mean what they say."""
        power_n = theta[1] - theta[2] * self.x_n
        logs_n = np.logaddexp(theta[0], power_n)
        share_n = np.exp(power_n - logs_n)
        r_n = (logs_n - self.y_n) / DELTA
        far_n = np.abs(r_n) > 1
        value = float(np.where(far_n, np.abs(r_n) - 0.5, 0.5 * r_n**2).sum())
        pull_n = np.clip(r_n, -1, 1) / DELTA
        slope = np.array([pull_n @ (1 - share_n), pull_n @ share_n, -pull_n @ (share_n * self.x_n)])
        return value, slope
