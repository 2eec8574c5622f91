"""The commands and files that a page of the documentation shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    """One fenced block: ``console``, ``yaml``, ``python``, ``diff`` ... and its text."""

    language: str
    text: str

    def commands(self) -> list[str]:
        """Lines after the prompt; a block of the console holds commands and what they print."""
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]


def fences(page: str) -> list[Fence]:
    """All fenced blocks of a page, in order; directives such as ``{literalinclude}`` are left out."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [Fence(match["language"], match["text"]) for match in _BLOCK.finditer(text)]
