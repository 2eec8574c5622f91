"""What the page on wrapping says of each fault is what the checks find when the fault is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbreed.core.conformance.suite import check
from crossbreed.core.host import Host
from tests.docs.pages import DOCS, Fence, fences

RIGHT = DOCS.parent / "examples" / "wrapping" / "bigram.py"


def faults() -> Iterator[tuple[str, Fence, set[str]]]:
    """Each section's heading, its diff, and the rules it says fail."""
    page = (DOCS / "plugins/wrapping.md").read_text()
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        diff = re.search(r"^```diff\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        if diff:
            said = section.partition("Fails:")[2]
            yield section.splitlines()[0], Fence("diff", diff[1]), set(re.findall(r"`([a-z-]+)`", said))


def changed(text: str, diff: Fence) -> str:
    """The text with the diff's removed lines, which must stand there once and together, replaced by the added ones."""
    lines = diff.text.splitlines()
    old = "".join(f"{line[1:]}\n" for line in lines if line.startswith("-"))
    new = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
    assert text.count(old) == 1, f"these lines do not stand once in {RIGHT.name}:\n{old}"
    return text.replace(old, new)


def failed(path: Path) -> set[str]:
    report = check(Host.load([str(path)], third_party=False), "mixer", "bigram", "suite")
    return {outcome.rule.name for outcome in report.failures}


def test_the_wrapped_module_passes_every_rule() -> None:
    assert failed(RIGHT) == set()


@pytest.mark.parametrize(("diff", "said"), [pytest.param(d, s, id=name) for name, d, s in faults()])
def test_each_fault_of_the_page_fails_the_rules_that_the_page_says(
    tmp_path: Path, diff: Fence, said: set[str]
) -> None:
    path = tmp_path / "bigram.py"
    path.write_text(changed(RIGHT.read_text(), diff))
    assert said
    assert failed(path) == said


def test_the_page_has_a_fault_of_each_kind_that_it_promises() -> None:
    names = [name for name, _, _ in faults()]
    assert {"Without a state", "Without a cost formula", "Not causal"} <= set(names)
    assert [fence.commands() for fence in fences("plugins/wrapping.md") if fence.commands()]
