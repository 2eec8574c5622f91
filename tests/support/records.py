"""The records of a trial, sorted out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from crossbreed.core.lab.records import Curve, CurvePoint, Record

R = TypeVar("R", bound=Record)


def of(kind: type[R], records: Iterable[Record]) -> list[R]:
    """The records of one kind, in order."""
    return [record for record in records if isinstance(record, kind)]


def points(records: Iterable[Record]) -> list[CurvePoint]:
    """What the curves among the records consist of, in order."""
    return [point for curve in of(Curve, records) for point in curve.points]
