"""Reading the broken plugins: files that are wrong in one line, which says after ``# right:`` what it should be."""

from __future__ import annotations

import re
from pathlib import Path

from crossbreed.core.conformance.report import Report
from crossbreed.core.conformance.suite import check
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.host import Host, PluginFile

BROKEN = Path(__file__).parent / "broken"
MARK = re.compile(r"^( *)(\S.*?)  # right: (.+)$", re.MULTILINE)
BREAKS = re.compile(r'^BREAKS = "([\w-]+)"$', re.MULTILINE)


def broken(folder: str) -> list[Path]:
    """The broken plugins of one kind."""
    return sorted((BROKEN / folder).glob("*.py"))


def rule_broken(path: Path) -> str:
    """The one rule that a file breaks."""
    (name,) = BREAKS.findall(path.read_text())
    return str(name)


def reverted(path: Path) -> str:
    """The file with its one bad line put right."""
    text = path.read_text()
    assert len(MARK.findall(text)) == 1, f"{path.name} must have one line marked '# right:'"
    return MARK.sub(r"\1\3", text)


def judged(path: Path, text: str, kind: Kind, name: str = "small") -> Report:
    """The report on a plugin of one file, by the suite profile."""
    import hashlib

    file = PluginFile(str(path), hashlib.sha256(text.encode()).hexdigest(), text)
    return check(Host.load([file], third_party=False), kind, name)


def failures(report: Report) -> dict[str, str]:
    """What failed, by rule."""
    return {outcome.rule.name: str(outcome) for outcome in report.failures}
