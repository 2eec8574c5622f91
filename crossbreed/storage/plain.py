"""Values as JSON that every database takes: no NaN, no infinity, no classes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from pydantic import BaseModel


def dumps(value: Any) -> str:
    """JSON text of ``value``. Numbers that are not finite are written as null: SQL has no portable form for them."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """``value`` in JSON's types: dataclasses and pydantic models as objects, tuples as lists, NaN and inf as None.

    Raises TypeError for anything else, naming its type.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if hasattr(value, "item"):  # a NumPy or torch scalar, without importing either
        return plain(value.item())
    raise TypeError(f"{type(value).__name__} {value!r} cannot be stored as JSON")


def finite(value: float | None) -> float | None:
    """The number, or None where it is NaN or infinite."""
    return None if value is None or not math.isfinite(value) else float(value)
