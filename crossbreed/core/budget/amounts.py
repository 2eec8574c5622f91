"""Amounts as people write them: numbers with decimal or binary prefixes, refused where their unit is another one."""

from __future__ import annotations

import math
import re
from typing import Any

from crossbreed.core.errors import nearest

DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
COUNTS = {**DECIMAL, "B": 1e9}
"""Parameters: 1.5B is what the field writes for 1.5 thousand million."""
FLOPS = {
    **DECIMAL,
    **{f"{p}FLOPs": f for p, f in DECIMAL.items()},
    **{f"{p}FLOP": f for p, f in DECIMAL.items()},
}
BYTES = {"": 1.0, **{f"{p}B": f for p, f in {**DECIMAL, **BINARY}.items()}}
WRITTEN = re.compile(
    r"\s*([+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|[\d._]+)(?:e[+-]?\d+)?)\s*([A-Za-z]*)\s*", re.IGNORECASE
)


def read_amount(quantity: str, value: Any) -> float:
    """A reference value from a number or from text such as ``"180M"``, ``"1.1 GFLOPs"`` or ``"512 MiB"``.

    Raises ValueError with the units of the quantity for any other unit, and for a value that is not finite or below 1: no
    quantity of an architecture is a part of a byte, weight or FLOP.
    """
    units = _units(quantity)
    rule = (
        f"reference value of {quantity!r} must be a finite number of at least 1, got {value!r}; "
        f"units it takes: none, {', '.join(u for u in units if u)}"
    )
    if isinstance(value, str):
        found = WRITTEN.fullmatch(value)
        try:
            number = float(found[1].replace("_", "").replace(",", "")) if found else math.nan
        except ValueError:
            number = math.nan
        unit = found[2] if found else ""
        if unit not in units:
            raise ValueError(f"{rule}; {unit!r} is none of them{nearest(unit, units)}")
        number *= units[unit]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError(rule)
    if not (math.isfinite(number) and number >= 1):
        raise ValueError(rule)
    return number


def _units(quantity: str) -> dict[str, float]:
    if quantity.endswith("bytes"):
        return BYTES
    return FLOPS if "flops" in quantity else COUNTS
