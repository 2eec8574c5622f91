"""What helps where a budget cannot be met: work that nothing moves, dimensions that could be freed, a wrong unit."""

from __future__ import annotations

from crossbreed.core.budget.dimensions import layout, movable, unnumbered
from crossbreed.core.budget.problem import Point, Problem
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.ledger import QUANTITIES, Ledger, Part

STILL = 1e-9
"""Relative changes below this are rounding."""
FAR = 20
"""A target this many times the value, or this small a part of it, looks like another unit."""
HUGE = 1e12
"""Factors from which only the magnitude is said."""
LARGE = 0.1
"""Share of a quantity from which work that nothing moves is worth naming."""
COARSE = 4
"""Tolerances that a single grid step must exceed to be called coarse."""


def coarse(problem: Problem, point: Point) -> str:
    """The dimensions whose smallest step takes a matched quantity across its whole tolerance and more, and past its target."""
    here = problem.residuals(point)
    found = []
    for axis, dimension in enumerate(problem.layout.dimensions):
        there = [r for p in problem.neighbours(point, axis) if (r := problem.residuals(p)) is not None]
        for q, rule in enumerate(problem.rules):
            step = min((abs(r[q] - here[q]) for r in there), default=0.0) if here is not None else 0.0
            past = here is not None and step > abs(here[q])
            if rule.two_sided and rule.tolerance and step > COARSE * rule.tolerance and past:
                found.append(f"one step of {dimension.name} changes {rule.quantity} by {step:.1%}")
                break
    return f" The grid is coarse there: {'; '.join(found)}." if found else ""


def unit(problem: Problem, stuck: int) -> str:
    """The unit of a quantity whose target lies so far from the proposal that it may have been given in another one."""
    start = problem.costed(problem.start)
    if start is None or not start.values[stuck]:
        return ""
    quantity, factor = problem.rules[stuck].quantity, problem.rules[stuck].target / start.values[stuck]
    if 1 / FAR < factor < FAR:
        return ""
    times = f"{_round(factor)} times" if factor > 1 else f"1/{_round(1 / factor)} of"
    text = f" The target is {times} the proposal's value; budgets give {quantity} as {QUANTITIES[quantity]}"
    batch, tokens = problem.shape.batch, problem.shape.tokens
    for total, what in ((tokens, "one sequence"), (batch * tokens, "the whole batch")):
        if "per_token" in quantity and total >= FAR and total / 3 < factor < 3 * total:
            return f"{text}: a total over the {total:,} tokens of {what} must be divided by them."
    return f"{text}."


def _round(factor: float) -> str:
    return f"{factor:,.0f}" if factor < HUGE else f"{factor:.0e}"


def fixed_parts(problem: Problem, point: Point, ledger: Ledger, stuck: int) -> str:
    """The parts of a model that hold a quantity up and that no free dimension moves."""
    quantity = problem.rules[stuck].quantity
    if quantity not in Part._fields:
        return ""
    amounts = {(p.site, p.name): getattr(p, quantity) for p in ledger.parts}
    for axis in range(len(point)):
        for other in problem.neighbours(point, axis):
            if problem.residuals(other) is not None:
                there = {(p.site, p.name): getattr(p, quantity) for p in problem.ledger(other).parts}
                amounts = {key: amount for key, amount in amounts.items() if there.get(key) == amount}
    by_name: dict[str, dict[str, float]] = {}
    for (site, name), amount in amounts.items():
        by_name.setdefault(name, {})[site] = amount
    whole, head = ledger.quantity(quantity), _head(ledger, quantity)
    found = []
    for name, at in sorted(by_name.items(), key=lambda item: -sum(item[1].values())):
        total = sum(at.values())
        if total >= LARGE * whole:
            where = "" if list(at) == [name] else f" at {', '.join(at)}"
            found.append(
                f"{name}{where}: {_amount(list(at.values()), name, head)} ({total / whole:.0%} of it)"
            )
    return f" No free dimension moves {'; '.join(found)}." if found else ""


def _head(ledger: Ledger, quantity: str) -> dict[float, str]:
    """FLOPs of one product with the output head, forward and with its backward pass."""
    if "flops" not in quantity:
        return {}
    once = next((p.prefill_flops_per_token for p in ledger.parts if p.site == "head"), 0.0)
    return {once: "a probe of the output head, 2 d_model vocab"} if once else {}


def _amount(amounts: list[float], name: str, known: dict[float, str]) -> str:
    each = known.get(amounts[0])
    same = len(set(amounts)) == 1
    text = f"{len(amounts)} x {amounts[0]:,.0f}" if same and len(amounts) > 1 else f"{sum(amounts):,.0f}"
    return f"{text}, each {each}" if each and same and name != "head" else text


def requests(problem: Problem, point: Point, stuck: int, rises: bool, parts: Parts) -> str:
    """The dimensions that stand still and would move the quantity the right way if a budget freed them."""
    architecture = problem.layout.at(point)
    moving = {d.name for d in problem.layout.dimensions}
    helpful = []
    for name in sorted(movable(parts)):
        # One at a time: what equals another setting follows it as long as it is not freed itself.
        freed = Problem(layout(architecture, parts, {name: None}), problem.budget, problem.cost_model)
        here = freed.costed(freed.start)
        new = [
            axis
            for axis, d in enumerate(freed.layout.dimensions)
            if unnumbered(d.name) == name and d.name not in moving
        ]
        if here is None or not new:
            continue
        around = [p for axis in new for p in freed.neighbours(freed.start, axis)]
        changes = [here.changes(there)[stuck] for p in around if (there := freed.costed(p)) is not None]
        if any((change if rises else -change) > STILL for change in changes):
            helpful.append(name)
    return f" Freeing {' or '.join(helpful)} would move it." if helpful else ""
