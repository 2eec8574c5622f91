"""What the papers claim and what miniatures of it show: the page, from the declared claims and the committed records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crossbreed.claims.claim import Paper, Scale
from crossbreed.claims.papers import PAPERS
from crossbreed.claims.record import Record
from crossbreed.claims.verdicts import Answer, answers, tuned
from crossbreed.claims.words import effect, expected, grounds, lacking, late, verdict
from crossbreed.core.host import Host, Registry

PAGE = "claims.md"
RECORDS = Path(__file__).resolve().parent.parent / "_records"
NEWEST: tuple[Scale, ...] = ("gpu", "cpu")


def text() -> str:
    """The page that the committed records give."""
    registry = Host.load(third_party=False)
    lines = [
        "<!-- Written from crossbreed/claims/papers and docs/_records/claims_*.json by `make generated`. -->",
        "",
        "# Claims of the papers, in miniature",
        "",
        INTRODUCTION,
    ]
    # The cross has a page of its own.
    for paper in (one for one in PAPERS.values() if one.name != "cross"):
        lines += [f"## {paper.title}", "", f"{paper.source}; `crossbreed claims {paper.name}`.", ""]
        kept = [r for scale in NEWEST if (r := record_of(paper, scale)) is not None]
        # Without runs the claims that follow from the ledger are answered all the same.
        for record in kept or [Record(paper.name, "cpu", Path())]:
            lines += section(paper, record, registry)
    return "\n".join(lines)


def record_of(paper: Paper, scale: Scale) -> Record | None:
    """The committed record of a paper at a scale."""
    path = RECORDS / f"claims_{paper.name}_{scale}.json"
    return Record.at(path, paper.name, scale) if path.exists() else None


def section(paper: Paper, record: Record, registry: Registry) -> list[str]:
    """One paper at one scale: a line a claim, then every part of each."""
    found = answers(paper, record, registry)
    lines = [f"### {heading(record)}", "", *(f"{w}\n" for w in warnings(paper, record))]
    lines += ["| | claim | the paper's number | verdict | seeds | tokens |", "|---|---|---|---|---:|---:|"]
    lines += [row(a) for a in found]
    lines += ["", "| | part | expected | found | by | verdict |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {a.claim.id} | {f.part.says} | {expected(f.part)} | {effect(f.judged, f.part.unit)} | {grounds(f)} | {verdict(f)} |"
        for a in found
        for f in a.parts
    ]
    return [*lines, "", *notes(found), *tasks(paper, record), *arms(paper, record)]


def heading(record: Record) -> str:
    devices = sorted({run["device"] for run in record.runs})
    if not devices:
        return "No runs recorded"
    seconds = record.seconds
    return (
        f"Scale {record.scale}: {', '.join(devices)}, {len(record.runs)} runs, {record.tokens / 1e6:,.0f}M tokens, "
        f"{seconds / 60:,.0f} minutes of work"
    )


def warnings(paper: Paper, record: Record) -> Iterator[str]:
    """What a reader must know before any verdict."""
    changed = record.changed(paper)
    if changed:
        yield f"**Declared otherwise when these runs were recorded: {', '.join(changed)}. Their verdicts are no tests.**"
    unknown = [i for i, d in record.declared.items() if d["commit"] is None]
    if unknown:
        yield f"**Declared in no commit when these runs were recorded: {', '.join(unknown)}.**"
    known = {d["blob"]: d["written"] for d in record.declared.values() if d["blob"]}
    if known:
        files = ", ".join(
            f"{written} (`git log --find-object={blob[:12]}`)" for blob, written in known.items()
        )
        yield f"Declared {files}; first run after {record.sessions[0]['began']}."
    if record.scale == "cpu" and record.runs:
        yield "A CPU record: small models, few seeds. A GPU record of the same claims is put before it once there is one."


def row(a: Answer) -> str:
    tokens = f"{a.tokens / 1e6:,.1f}M" if a.tokens else ""
    said = f"**{a.verdict}**" if a.verdict != "undecided" else "undecided"
    return f"| {a.claim.id} | {a.claim.sentence} | {a.claim.paper} | {said} | {a.seeds or ''} | {tokens} |"


def notes(found: list[Answer]) -> Iterator[str]:
    """What undecided claims need, and what a reader should know of some."""
    said = []
    for a in found:
        words = [w for w in (lacking(a), late(a), a.claim.note) if w]
        if a.diverged:
            words.append(f"{a.diverged} runs ended without numbers")
        if words:
            said.append(f"- {a.claim.id}: {'; '.join(w.rstrip('.') for w in words)}.")
    if said:
        yield from (*said, "")


def tasks(paper: Paper, record: Record) -> Iterator[str]:
    """What each experiment trains on, and for how long."""
    if not record.runs:
        return
    yield "| experiment | task | tokens a run | learning rates tried |"
    yield "|---|---|---:|---|"
    for experiment in paper.experiments[record.scale]:
        settings = ", ".join(f"{name} {value}" for name, value in experiment.task["params"].items())
        rates = ", ".join(f"{lr:g}" for lr in experiment.lrs)
        tokens = int(experiment.recipe["tokens"])
        yield f"| {experiment.name} | `{experiment.task['name']}`: {settings} | {tokens:,} | {rates} |"
    yield ""


def arms(paper: Paper, record: Record) -> Iterator[str]:
    """Every arm with its certificate and what it was trained with."""
    lrs = tuned(paper, record)
    rows = []
    for name, lr in lrs.items():
        arm = record.arms[name]
        off = ", ".join(f"{q['quantity']} {q['residual']:+.1%}" for q in arm["certificate"]["quantities"])
        experiment, _, own = name.partition("/")
        runs = [
            r for r in record.runs if (r["experiment"], r["arm"], r["role"]) == (experiment, own, "report")
        ]
        scores = [r["points"]["own"]["score"] for r in runs if r["state"] == "done"]
        mean = f"{sum(scores) / len(scores):.3f}" if scores else "-"
        parameters = arm["figures"]["parameters"]
        rows.append(f"| {name} | {parameters:,} | {off} | {lr:g} | {len(scores)} | {mean} |")
    if rows:
        yield "| arm | parameters | off its budget | learning rate | runs | mean score |"
        yield "|---|---:|---|---:|---:|---:|"
        yield from (*rows, "")


INTRODUCTION = """\
What three papers say, each claim turned into runs small enough to repeat. Models of a claim meet one budget and carry its
certificate; each has its learning rate tuned over the same settings, on a seed that is not reported; runs with one seed see the
same data in the same order, and what is judged is their difference. Directions and margins are declared in
`crossbreed/claims/papers`; a record keeps the commit that last touched them before its runs, and refuses more runs once they differ.

| verdict | when, for a claimed difference (95% Student t interval over seeds) |
|---|---|
| supported | the interval lies above 0 and the mean reaches the margin; for "not below", it lies above minus the margin; for "0", within it |
| contradicted | the same on the other side |
| equal | a difference was claimed, and the whole interval lies within the margin |
| undecided | anything else; what would decide it is said |

A claim is supported when all of its parts are, contradicted by one; parts that a scale leaves out have no say. A claim that is still undecided after its seeds is looked
at a second time with as many as its spread asks for, within a limit; so two looks at most are taken at each. Intervals are not
corrected for the number of claims. What follows from structure and ledger alone is marked exact: it is arithmetic, and was known
when it was declared. These are miniatures: a verdict here is about small models on made-up tasks under the stated budget, and
neither proves nor refutes a paper about models a thousand times as large.

The same command on a GPU (`--scale gpu`) asks the same questions of larger models, and some more; runs add up in one file. Hybrids
of the three that nobody published have [a page of their own](cross.md).
"""
