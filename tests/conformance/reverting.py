"""Reading the broken plugins: files that are wrong in one line, which says after ``# right:`` what it should be."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from crossbreed.core.conformance.report import Report
from crossbreed.core.conformance.rule import subject_of
from crossbreed.core.conformance.suite import check, judge
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.host import Host, PluginFile, Registry

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


def loaded(path: Path, text: str) -> Registry:
    """The built-ins and a plugin of one file."""
    file = PluginFile(str(path), hashlib.sha256(text.encode()).hexdigest(), text)
    return Host.load([file], third_party=False)


def judged(path: Path, text: str, kind: Kind, name: str = "small") -> Report:
    """The report on a plugin of one file, by the suite profile."""
    return check(loaded(path, text), kind, name)


def mended(path: Path, kind: Kind, before: Report) -> dict[str, str]:
    """The status of every rule that the file did not pass as it is, once its one bad line is put right."""
    subject = subject_of(kind)(loaded(path, reverted(path)), before.name, before.profile, ())
    rules = [outcome.rule for outcome in before.outcomes if outcome.status != "passed"]
    return {rule.name: judge(rule, subject).status for rule in rules}


def failures(report: Report) -> dict[str, str]:
    """What failed, by rule."""
    return {outcome.rule.name: str(outcome) for outcome in report.failures}
