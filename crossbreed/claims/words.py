"""How verdicts are said: the same words on a terminal and on a page."""

from __future__ import annotations

from crossbreed.claims.claim import Exact, Part, Speed
from crossbreed.claims.judge import Judged
from crossbreed.claims.verdicts import Answer, Found

DIRECTIONS = {"more": "> 0", "at_least": "not below 0", "equal": "0"}


def number(value: float) -> str:
    """Signed, three digits behind the point where that says something, else three significant ones; zero is ``0``."""
    if value == 0:
        return "0"
    return f"{value:+.3f}" if 0.001 <= abs(value) < 1000 else f"{value:+.3g}"


def effect(judged: Judged, unit: str = "") -> str:
    """The mean with its interval and unit."""
    if judged.effect is None:
        return "-"
    said = number(judged.effect)
    if judged.interval is not None and judged.interval.low < judged.interval.high:
        said += f" [{number(judged.interval.low)}, {number(judged.interval.high)}]"
    return f"{said} {unit}".strip()


def expected(part: Part) -> str:
    """What was claimed, and from what difference on it matters."""
    return f"{DIRECTIONS[part.direction]}, margin {part.margin:g}"


def grounds(found: Found) -> str:
    """Seeds, or why there are none."""
    if isinstance(found.part, Exact):
        return "exact"
    if isinstance(found.part, Speed):
        return found.why or "quartiles of times"
    return found.why or f"{found.judged.seeds} seeds"


def lacking(answer: Answer) -> str:
    """What an undecided claim needs, in words; empty for one that is decided."""
    if answer.verdict != "undecided":
        return ""
    if not any(f.asked for f in answer.parts):
        return answer.parts[0].why
    whys = list(dict.fromkeys(f.why for f in answer.parts if f.why and f.asked))
    if whys:
        return "; ".join(whys)
    open_parts = [f.judged for f in answer.parts if f.asked and f.judged.verdict == "undecided"]
    if any(j.seeds < 3 for j in open_parts):
        return "an interval needs 3 seeds"
    if answer.needs is None:
        return "with this mean and spread no number of seeds would decide: the effect lies at its margin"
    return f"about {answer.needs} seeds would decide, with this mean and spread"


def late(answer: Answer) -> str:
    """A warning where a claim was declared after runs that it is judged by."""
    return f"declared after {answer.late} of its runs" if answer.late else ""


def verdict(found: Found) -> str:
    """A part's verdict; a dash where its scale does not ask."""
    return found.judged.verdict if found.asked else "-"
