"""The cross of the three systems: the page, with the front over all of them, from the committed record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crossbreed.claims.front import Point, front
from crossbreed.claims.papers import PAPERS
from crossbreed.claims.papers.cross import PUBLISHED
from crossbreed.claims.record import Record
from crossbreed.claims.verdicts import Answer, answers
from crossbreed.claims.words import effect, expected, grounds, lacking, verdict
from crossbreed.core.host import Host, Registry

PAGE = "cross.md"
RECORDS = Path(__file__).resolve().parent.parent / "_records"
WHAT = {
    "transformer": "attention and SwiGLU; sets the budget",
    "amor": "Gated DeltaNet, then two attention blocks behind entropy gates",
    "oryx": "Gated DeltaNet and attention over shared keys and values, modes drawn 3 to 1",
    "dreamer": "one block of depth attention, attention and experts, repeated",
    "oryx-entropy": "Oryx whose mode an entropy gate chooses for each segment",
    "dreamer-halt-entropy": "Dreamer whose tokens stop where they are sure, by their entropy",
    "dreamer-halt-learned": "Dreamer whose tokens stop by a learned router",
    "dreamer-gdn": "Dreamer with Gated DeltaNet in place of attention over the sequence",
    "oryx-amor": "Oryx, then two attention blocks behind entropy gates",
}


def text() -> str:
    """The page that the committed record gives, a GPU's before a CPU's."""
    registry = Host.load(third_party=False)
    lines = [
        "<!-- Written from crossbreed/claims/papers/cross.py and docs/_records/claims_cross_*.json by `make generated`. -->",
        "",
        "# The cross",
        "",
        INTRODUCTION,
        "| arm | what it is | |",
        "|---|---|---|",
        *(f"| `{n}` | {w} | {'published' if n in PUBLISHED else ''} |" for n, w in WHAT.items()),
        "",
    ]
    kept = [
        Record.at(path, "cross", scale)
        for scale in ("gpu", "cpu")
        if (path := RECORDS / f"claims_cross_{scale}.json").exists()
    ]
    if not kept:
        return "\n".join([*lines, "No run of it is recorded yet: `crossbreed claims cross`.", ""])
    for record in kept:
        lines += section(record, registry)
    return "\n".join(lines)


def section(record: Record, registry: Registry) -> Iterator[str]:
    """One scale: the front of each task, then the questions."""
    paper = PAPERS["cross"]
    devices = ", ".join(sorted({r["device"] for r in record.runs}))
    yield from (f"## Scale {record.scale}: {devices}, {len(record.runs)} runs", "")
    for experiment in paper.experiments[record.scale]:
        points = front(experiment, record)
        if points:
            params = ", ".join(f"{k} {v}" for k, v in experiment.task["params"].items())
            yield f"### {experiment.name}: {params}"
            yield ""
            yield "| arm | on the front | accuracy (95% interval) | FLOPs of a decoded token | routed | parameters | seeds |"
            yield "|---|---|---:|---:|---:|---:|---:|"
            yield from map(row, points)
            yield ""
    yield from ("| | question | part | expected | found | by | verdict |", "|---|---|---|---|---|---|---|")
    found = answers(paper, record, registry)
    for a in found:
        for f in a.parts:
            yield (
                f"| {a.claim.id} | {a.claim.sentence} **{a.verdict}** | {f.part.says} | {expected(f.part)} | "
                f"{effect(f.judged, f.part.unit)} | {grounds(f)} | {verdict(f)} |"
            )
    yield ""
    yield from needs(found)


def row(p: Point) -> str:
    spread = "" if p.interval is None else f" ({p.interval.low:.3f} to {p.interval.high:.3f})"
    routed = "" if p.rate is None else f"{p.rate:.0%}"
    return (
        f"| `{p.arm}` | {'yes' if p.front else ''} | {p.score:.3f}{spread} | {p.decode_flops:,.0f} | {routed} | "
        f"{p.parameters:,} | {p.seeds} |"
    )


def needs(found: list[Answer]) -> Iterator[str]:
    """What the undecided questions need."""
    said = [f"- {a.claim.id}: {words}." for a in found if (words := lacking(a))]
    if said:
        yield from (*said, "")


INTRODUCTION = """\
AMOR, Oryx and Dreamer are points of one space, so hybrids that nobody published are a changed field of a genome. Here they stand
beside the three on the same tasks: all at one number of parameters within 2% and at most a tenth more memory, tuned over the same
learning rates, on shared seeds (`crossbreed claims cross`; how verdicts are reached is said in [](claims.md)). FLOPs are not
matched: they are the other axis of the front, as realised by each model's own decisions after training. *Routed* is the share of
decisions for more than the cheapest choice: a gate that runs, attention as mode, another depth. Two tasks pull in different
directions: `recall` wants memory, `permutations` (the word problem of a symmetric group) a state that is stepped many times.
"""
