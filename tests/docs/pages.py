"""The commands and files that a page of the documentation shows, and what generates a page."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

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


def generator(name: str, docs: Path = DOCS) -> ModuleType:
    """A module of ``docs/_generate``, which is no package: made anew, under a name of its own."""
    folder = docs / "_generate"
    spec = importlib.util.spec_from_file_location(f"generate_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        # It finds its neighbours by path, and a dataclass looks its module up while it is made.
        patched.setattr(sys, "path", [str(folder), *sys.path])
        patched.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
    return module
