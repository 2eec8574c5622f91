"""Certificates: the proof, kept with a candidate, of how closely it meets its budget."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from crossbreed.core.budget.budget import Budget
from crossbreed.core.ledger import Ledger

Path = Literal["given", "closed_form", "coordinate_descent", "enumeration", "optuna"]
"""How the dimensions were found; ``given``: certified as written, nothing was moved."""
MOST_DIGITS = 9
"""Behind the point of a percentage: more than costs of whole FLOPs can differ by."""


class Residual(BaseModel):
    """One quantity against its target. ``residual`` is signed and relative: (value - target) / target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantity: str
    kind: Literal["match", "cap"]
    target: float
    tolerance: float
    value: float
    residual: float
    ok: bool


class Certificate(BaseModel):
    """Signed residuals of every budgeted quantity, the dimensions that give them, and how they were found.

    ``rates``: ``nominal`` before training, ``realised`` after. ``reason``, when infeasible: the quantity that cannot move
    and why, at the nearest point found.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    feasible: bool
    quantities: tuple[Residual, ...]
    dimensions: dict[str, int] = {}
    path: Path
    rates: Literal["nominal", "realised"] = "nominal"
    reason: str | None = None

    def worst(self) -> Residual:
        """The quantity furthest outside its tolerance, or closest to its edge."""
        return max(self.quantities, key=excess)

    def excess(self) -> float:
        """How far outside its tolerance the worst quantity lies; at most 0 when feasible."""
        return excess(self.worst())


def excess(residual: Residual) -> float:
    """How far outside its tolerance a quantity lies; negative inside."""
    off = abs(residual.residual) if residual.kind == "match" else residual.residual
    return off - residual.tolerance


def residuals(ledger: Ledger, budget: Budget) -> tuple[Residual, ...]:
    """All budgeted quantities of a ledger against their targets."""
    found = []
    for name in budget.quantities():
        kind: Literal["match", "cap"] = "match" if name in budget.match else "cap"
        tolerance = budget.match[name] if kind == "match" else budget.cap[name]
        target, value = budget.target(name), ledger.quantity(name)
        off = (value - target) / target
        ok = (abs(off) if kind == "match" else off) <= tolerance
        found.append(
            Residual(
                quantity=name,
                kind=kind,
                target=target,
                tolerance=tolerance,
                value=value,
                residual=off,
                ok=ok,
            )
        )
    return tuple(found)


def percents(off: float, tolerance: float, digits: int = 1) -> tuple[str, str]:
    """A signed residual and its tolerance in percent, with at least so many digits behind the point, and with as many as show
    that they differ."""
    while (
        f"{abs(off):.{digits}%}" == f"{tolerance:.{digits}%}"
        and abs(off) != tolerance
        and digits < MOST_DIGITS
    ):
        digits += 1
    return f"{off:+.{digits}%}", f"{tolerance:.{digits}%}"
