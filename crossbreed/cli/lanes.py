"""A text with a lane of marks for each router under it, as wide as the window, readable without colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from crossbreed.core.lab.generate import Decided, Generated

TWO_WAY = ".#"
"""Marks of a gate's and a halt's choices, the cheaper one first."""
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""Marks of modes."""
STYLES = ("dim", "bold cyan", "bold magenta", "bold yellow", "bold green", "bold blue")
NEW = "^"
TOKENS, NEW_LANE = "token", "new"


def lanes(found: Generated, words: Sequence[str], width: int, *, spaced: bool) -> Iterator[Text]:
    """Lines of blocks, each with its tokens, marks under the new ones, and what every site chose on reading them.

    words: of the prompt and what follows. spaced: whether a space stands between tokens, which are symbols and no text.
    """
    label = 2 + max(len(name) for name in (TOKENS, NEW_LANE, *(site.site for site in found.sites)))
    cells = [cell_len(word) + spaced for word in words]
    for begin, end in _blocks(cells, max(max(cells, default=1), width - label)):
        yield Text(f"from {begin}", "dim")
        yield _line(TOKENS, label, ((words[i], cells[i], _of_token(found, i)) for i in range(begin, end)))
        new = ((NEW if i >= len(found.prompt) else "", cells[i], "bold") for i in range(begin, end))
        yield _line(NEW_LANE, label, new)
        for site in found.sites:
            yield _line(site.site, label, (_mark(site, i, cells[i]) for i in range(begin, end)))


def legend(sites: Sequence[Decided]) -> Iterator[str]:
    """What the marks mean, a sentence for each set of choices."""
    for (kind, names), _ in groupby(
        sorted(sites, key=lambda s: (s.kind, s.names)), lambda s: (s.kind, s.names)
    ):
        marks = ", ".join(f"{_symbol(kind, n)} {name}" for n, name in enumerate(names))
        yield f"{kind}: {marks}"


def _blocks(cells: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    begin, used = 0, 0
    for i, cell in enumerate(cells):
        if used + cell > room:
            yield begin, i
            begin, used = i, 0
        used += cell
    if begin < len(cells):
        yield begin, len(cells)


def _line(name: str, label: int, cells: Iterator[tuple[str, int, str]]) -> Text:
    line = Text(name.ljust(label))
    for mark, width, style in cells:
        line.append(mark, style)
        line.append(" " * (width - cell_len(mark)))
    line.rstrip()
    return line


def _of_token(found: Generated, i: int) -> str:
    return "bold" if i >= len(found.prompt) else ""


def _mark(site: Decided, i: int, width: int) -> tuple[str, int, str]:
    choice = site.choices[i] if i < len(site.choices) else None
    if choice is None:
        return "", width, ""
    return _symbol(site.kind, choice), width, STYLES[choice % len(STYLES)]


def _symbol(kind: str, choice: int) -> str:
    return DIGITS[choice % len(DIGITS)] if kind == "mode" else TWO_WAY[choice]
