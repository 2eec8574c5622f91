"""Generated pages say what the code says, and a page that differs is told apart."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import DOCS, generator


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """``docs/_generate`` over a copy of the docs; what its pages should say is found out once."""
    docs = Path(shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__")))
    module = generator("__main__", docs)
    monkeypatch.setattr(module, "pages", functools.cache(module.pages))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield module
    # Its pages are modules of plain names, which are not to stay in this process.
    for file in module.HERE.glob("[!_]*.py"):
        sys.modules.pop(file.stem, None)


def test_committed_pages_are_as_generated_and_an_edit_by_hand_is_found(
    generate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    generate.main()
    assert capsys.readouterr().out == ""
    page = generate.HERE.parent / "plugins/reference.md"
    right = page.read_text()
    page.write_text(right.replace("Offer routers", "Offer gates"))
    with pytest.raises(SystemExit, match="make generated"):
        generate.main()
    assert "-: Offer gates for the gate, mode or halt site." in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["generate"])
    generate.main()
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text() == right
