"""How commands speak: data on stdout (tables or JSON), logs on stderr, and numbers that people can read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

WIDE = 220
"""Columns of a table that goes into a file or a pipe, where no window limits it."""


def program() -> str:
    """How to call this program again: by name where it is on PATH, else by the path it was called with."""
    called = sys.argv[0]
    by_path = os.path.basename(called) == "crossbreed" and shutil.which("crossbreed") is None
    return called if by_path else "crossbreed"


def data_console() -> Console:
    """Stdout: tables and trees."""
    free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=WIDE if free else None, highlight=False)


def log_console() -> Console:
    """Stderr: progress and notes."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def only_logs() -> contextlib.AbstractContextManager[object]:
    """While runs are trained: what plugins and Ray print goes to stderr, so that stdout holds data alone."""
    return contextlib.redirect_stdout(sys.stderr)


def print_json(command: str, payload: Mapping[str, Any]) -> None:
    """One JSON object on stdout, named by its schema (``cli/schemas/<command>.json``). Not-a-numbers become null."""
    print(json.dumps(_document(command, payload), indent=2, allow_nan=False))


def json_line(command: str, payload: Mapping[str, Any]) -> str:
    """The same on one line, for objects that follow each other."""
    return json.dumps(_document(command, payload), allow_nan=False)


def _document(command: str, payload: Mapping[str, Any]) -> Any:
    return _finite({"schema": f"crossbreed/{command}/1", **payload})


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def table(title: str, columns: Iterable[str | tuple[str, str]], caption: str | None = None) -> Table:
    """An empty table; a column is its heading, or (heading, justification)."""
    made = Table(
        title=title,
        caption=caption,
        box=SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        pad_edge=False,
    )
    for column in columns:
        heading, justify = column if isinstance(column, tuple) else (column, "left")
        made.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return made


class Column(NamedTuple):
    """A column of a table: its heading, its cells, the last of which is a total, and whether they are numbers."""

    heading: str
    cells: Sequence[str]
    number: bool = True

    @property
    def width(self) -> int:
        """Characters it takes without wrapping, with the space beside it."""
        return 3 + max(map(len, (*self.heading.split("\n"), *self.cells)))


def print_totalled(
    console: Console, title: str, names: Sequence[Column], groups: Iterable[Sequence[Column]]
) -> None:
    """Lines with a total, in as many tables as the console's width needs: each begins with ``names``, and a group of columns
    stays together, so that no number is broken."""
    room = console.width - sum(column.width for column in names)
    tables: list[list[Column]] = [[]]
    for group in groups:
        if tables[-1] and sum(c.width for c in (*tables[-1], *group)) > room:
            tables.append([])
        tables[-1] += group
    for place, columns in enumerate(tables):
        shown = [*names, *columns]
        made = table(title if place == 0 else "", [])
        for column in shown:
            made.add_column(
                column.heading,
                justify="right" if column.number else "left",
                no_wrap=column.number,
                overflow="fold",
            )
        *lines, total = zip(*(column.cells for column in shown), strict=True)
        for line in lines:
            made.add_row(*line)
        made.add_section()
        made.add_row(*total)
        console.print(made)


def si(value: float | None, digits: int = 3) -> str:
    """A count with a decimal prefix: 1234567 -> ``1.23M``; an unknown one is a dash."""
    if value is None or not math.isfinite(value):
        return "-"
    # Rounded first, so that 999999 becomes 1M and not 1000k.
    rounded = float(f"{value:.{digits}g}")
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(rounded) >= limit:
            scaled = rounded / limit
            return f"{scaled:.0f}{suffix}" if abs(scaled) >= 1000 else f"{scaled:.{digits}g}{suffix}"
    return f"{rounded:.{digits}g}"


def size(bytes_: float | None) -> str:
    """Bytes with a binary prefix: 1536 -> ``1.5 KiB``."""
    if bytes_ is None:
        return "-"
    value = float(bytes_)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def percent(share: float | None) -> str:
    """A signed share: 0.0123 -> ``+1.23%``."""
    return "-" if share is None else f"{share:+.2%}"


def duration_s(seconds: float) -> str:
    """A short time with a decimal prefix: 0.00123 -> ``1.23 ms``."""
    for limit, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= limit:
            return f"{seconds / limit:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def duration(seconds: float | None) -> str:
    """Seconds as people say them: 75 -> ``1 min 15 s``."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
