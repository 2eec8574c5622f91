"""Searches on one GPU: the page, from the record that ``benchmarks/searches/summary.py`` writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossbreed.figures.words import UNITS, si

PAGE = "gpu-search.md"
DOCS = Path(__file__).resolve().parent.parent
RECORD = DOCS / "_records" / "gpu_search.json"
SHORT = {
    "training_flops_per_token": "train FLOPs",
    "non_embedding_parameters": "parameters",
    "memory_bytes": "memory",
}
"""Quantities of the budget, as the columns of their residuals are headed."""
SOFTWARE = {"python": "Python", "torch": "torch", "cuda": "CUDA"}


def text() -> str:
    """The page that the committed record gives."""
    lines = [
        "<!-- Written from docs/_records/gpu_search.json by `make generated`: change the record, not this page. -->",
        "",
        "# Searches on one GPU",
        "",
        INTRODUCTION,
    ]
    if not RECORD.exists():
        return "\n".join([*lines, "No run of them is recorded yet.", ""])
    for study in json.loads(RECORD.read_text(encoding="utf-8"))["studies"]:
        lines += section(study)
    return "\n".join(lines)


def section(study: dict[str, Any]) -> Iterator[str]:
    """One study: what it was, its front, and every candidate with its certificate."""
    name, found = study["study"], study["candidates"]
    params = ", ".join(f"{key} {value}" for key, value in study["task"]["params"].items())
    yield from (f"## {name}", "", f"Task `{study['task']['name']}`: {params}. {course(study)}", "")
    picture = DOCS / "_static" / f"search-{name}.svg"
    if picture.exists():
        yield from (
            f"![The front of {name} over all candidates that were trained](_static/{picture.name})",
            "",
        )
    yield from ("### The front", "")
    members = [c for c in found if c["on_front"]]
    yield from table(study, members, intervals=True)
    reference = ", ".join(f"{UNITS.get(n, n)} {value:,.4g}" for n, value in study["reference_point"].items())
    yield (
        f"Hypervolume {study['hypervolume']:,.4g}, from {reference}; it last changed after {study['seconds']:,.0f} s of search. "
        "Means over fresh seeds with 95% Student t intervals."
    )
    yield from ("", "### All candidates", "")
    yield from table(study, found, intervals=False)


def course(study: dict[str, Any]) -> str:
    """How the search went, in sentences."""
    states = Counter(c["state"] for c in study["candidates"])
    matched = sum(states.values()) - states["infeasible"]
    said = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in sorted(states.items()))
    train = study["train"]
    runs = sum(study["runs"].values())
    return (
        f"{len(study['candidates'])} candidates, of which {matched} met the budget: {said}. {runs} runs of at most {train['tokens']:,} tokens, {study['tokens']:,} tokens "
        f"in all, batches of {train['batch']}, {train['dtype']}. {where(study)}"
    )


def where(study: dict[str, Any]) -> str:
    environment = study["environment"]
    shared = {"True": "with MPS", "False": "without MPS"}
    mps = ", ".join(
        f"{shared[word]} ({count} runs)" for word, count in environment["mps"].items() if word in shared
    )
    versions = {word: [v for v in environment[what] if v != "None"] for what, word in SOFTWARE.items()}
    software = ", ".join(f"{word} {', '.join(found)}" for word, found in versions.items() if found)
    return f"On {', '.join(environment['device'])}, up to {study['per_gpu']} at once{', ' + mps if mps else ''}; {software}."


def table(study: dict[str, Any], rows: list[dict[str, Any]], *, intervals: bool) -> Iterator[str]:
    """Candidates, best score first: objectives, size, and how far each quantity of the budget is off at nominal rates, in brackets at
    those that trained routers chose."""
    names = list(study["objectives"])
    quantities = list(next((c["residuals"] for c in rows if c["residuals"]), {}))
    heads = ["#", "family", *(UNITS.get(n, n) for n in names), "seeds", "parameters"]
    heads += [f"{SHORT.get(q, q)} off by" for q in quantities]
    if not intervals:
        heads.insert(2, "state")
    yield f"| {' | '.join(heads)} |"
    yield f"|---:|---|{'---|' if not intervals else ''}{'---:|' * (len(names) + 2 + len(quantities))}"
    for c in rows:
        cells = [str(c["number"]), f"`{c['family']}`".replace("|", "\\|")]
        if not intervals:
            cells.append("on the front" if c["on_front"] else c["state"].replace("_", " "))
        cells += [objective(c["objectives"][n], intervals) for n in names]
        cells += [str(len(c["seeds"])), si(c["parameters"])]
        cells += [residual(c, q) for q in quantities]
        yield f"| {' | '.join(cells)} |"
    yield ""


def objective(values: dict[str, Any], interval: bool) -> str:
    mean, low, high = values["mean"], values["low"], values["high"]
    if mean is None:
        return ""
    return f"{_plain(mean)}" + (f" ({_plain(low)} to {_plain(high)})" if interval and low is not None else "")


def residual(c: dict[str, Any], quantity: str) -> str:
    """Signed, in percent."""
    nominal, realised = c["residuals"].get(quantity), (c["realised_residuals"] or {}).get(quantity)
    if nominal is None:
        return ""
    differs = realised is not None and abs(realised - nominal) > 5e-5
    return f"{nominal:+.2%}" + (f" ({realised:+.2%})" if differs else "")


def _plain(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.0f}"


INTRODUCTION = """\
Two searches over everything built in, each on one GPU, with study files that lie in `benchmarks/searches/` beside the commands that ran
them. The space is `open`: layer hybrids, AMOR, Oryx and Dreamer under one sampler, every candidate at the training FLOPs and parameters
of one Transformer within 2% and at most 2% more memory. Candidates train beside each other
([](clusters.md#several-gpus-and-parts-of-one)); the best quarter of the first rung goes on, and the members of the front are trained
with three fresh seeds. Speeds are of one text, each model timed with the GPU to itself. Runs are short, so what stands here is who learns
fast, not who is best in the end. A family's name is what it is made of: `/` a router, `>` one stage after another, `+` layers of both.
"""
