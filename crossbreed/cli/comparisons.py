"""``crossbreed study compare`` and ``study genes``: what stored results say about pairs of candidates and about choices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from crossbreed.cli.front import candidates_of
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, StudyName, registry_of
from crossbreed.cli.output import data_console, print_json, table

if TYPE_CHECKING:
    from crossbreed.core.search.genes import Effect, Genes
    from crossbreed.core.search.pairs import Comparison
    from crossbreed.core.search.statistics import Paired

PAIRED = "First minus second on the seeds both have, with 95% Student t intervals. p: two-sided, corrected for the number of tests (Holm)."
GENES = (
    "After minus before over pairs of candidates that differ in this gene alone, with 95% Student t intervals over pairs. "
    "p: two-sided, corrected for the number of effects (Holm). Dimensions that the matcher moved differ too."
)


def compare_stored(
    name: StudyName,
    candidates: Annotated[
        list[str],
        typer.Argument(metavar="CANDIDATE...", help="Two or more: numbers, or beginnings of hashes."),
    ],
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare candidates of a study on the seeds they share, from stored results. Nothing is trained.

    `crossbreed compare` trains genomes for such a comparison.
    """
    from crossbreed.core.errors import ConfigError
    from crossbreed.core.search import pairs
    from crossbreed.core.search.candidates import OWN
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    with Repository.open(db, read_only=True) as repository:
        found, objectives = candidates_of(repository, repository.open_study(name))
        found = [c for c in found if c.point == OWN]
    chosen = list({c.row.number: c for c in (pairs.find(found, text) for text in candidates)}.values())
    if len(chosen) < 2:
        raise ConfigError(f"a comparison needs two candidates, got {', '.join(candidates)}.")
    compared = pairs.compare(chosen, objectives)
    if json:
        print_json("study_compare", {"study": name, "differences": comparisons_data(compared)})
        return
    console = data_console()
    console.print(comparison_table(compared, f"Candidates of {name} on shared seeds"))
    for item in compared:
        console.print(f"{item.objective}: {item.sentence}", markup=False)


def comparisons_data(compared: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Comparisons as plain data."""
    return [
        {
            "objective": c.objective,
            "first": c.first,
            "second": c.second,
            "seeds": list(c.seeds),
            **_paired_data(c.paired),
            "p_corrected": c.corrected,
            "better": c.better,
            "sentence": c.sentence,
        }
        for c in compared
    ]


def comparison_table(compared: Sequence[Comparison], title: str) -> Table:
    """One line a pair and objective."""
    from crossbreed.cli.fronts import HEADINGS

    made = table(
        title,
        [
            "objective",
            ("first", "right"),
            ("second", "right"),
            ("shared\nseeds", "right"),
            ("difference", "right"),
            ("p", "right"),
        ],
        caption=escape(PAIRED),
    )
    for c in compared:
        shown = "-" if c.paired is None else difference_words(c.paired)
        heading = HEADINGS.get(c.objective, c.objective)
        made.add_row(heading, f"#{c.first}", f"#{c.second}", str(len(c.seeds)), shown, p_words(c.corrected))
    return made


def gene_effects(
    name: StudyName,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show which choices matter: the effect of each over pairs of candidates that differ in it alone."""
    from crossbreed.core.search.study import Study

    registry_of(plugin)
    with Study.open(db, name) as opened:
        found = opened.gene_effects()
    if json:
        effects = [
            {
                "gene": e.gene,
                "before": e.before,
                "after": e.after,
                "objective": e.objective,
                **_paired_data(e.paired),
                "p_corrected": e.corrected,
            }
            for e in found.effects
        ]
        print_json("study_genes", {"study": name, "effects": effects, "untested": list(found.untested)})
        return
    _print_genes(name, found)


def _print_genes(name: str, found: Genes) -> None:
    console = data_console()
    if found.effects:
        console.print(_gene_table(found.effects, f"Genes of {name}"))
    else:
        console.print("No gene can be judged: none differs alone in three pairs of candidates with results.")
    if found.untested:
        shown = ", ".join(found.untested)
        console.print(f"Fewer than three such pairs: {shown}.", markup=False)


def _gene_table(effects: Iterable[Effect], title: str) -> Table:
    from crossbreed.cli.fronts import HEADINGS

    made = table(
        title,
        ["gene", "before", "after", "objective", ("pairs", "right"), ("difference", "right"), ("p", "right")],
        caption=escape(GENES),
    )
    for e in effects:
        heading = HEADINGS.get(e.objective, e.objective)
        cells = (e.gene, str(e.before), str(e.after), heading, str(e.paired.pairs))
        made.add_row(*map(escape, cells), difference_words(e.paired), p_words(e.corrected))
    return made


def difference_words(test: Paired) -> str:
    """A signed mean difference with its interval: ``+0.012 (+0.003 to +0.021)``."""
    from crossbreed.cli.fronts import number

    interval = test.interval
    if interval is None:
        return number(test.mean, signed=True)
    low, high = number(interval.low, signed=True), number(interval.high, signed=True)
    return f"{number(test.mean, signed=True)} ({low} to {high})"


def p_words(p: float | None) -> str:
    """A p-value: ``0.03``, ``<0.001``."""
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.2g}"


def _paired_data(test: Paired | None) -> dict[str, Any]:
    return {
        "pairs": 0 if test is None else test.pairs,
        "mean": None if test is None else test.mean,
        "low": None if test is None else getattr(test.interval, "low", None),
        "high": None if test is None else getattr(test.interval, "high", None),
        "p": None if test is None else test.p,
    }
