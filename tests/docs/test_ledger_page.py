"""The worked examples of docs/ledger.md are executed, and there is one for every mixer."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from crossbreed.core.host import Registry

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


def test_every_number_of_the_page_is_computed() -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", PAGE.read_text(), flags=re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 20
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not failed, "".join(said)


def test_every_mixer_has_an_example(registry: Registry) -> None:
    shown = set(re.findall(r'cost\("(\w+)"', PAGE.read_text()))
    assert shown == set(registry.names("mixer"))
