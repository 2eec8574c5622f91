"""``crossbreed match``: bring genomes to a budget, or say why they cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from crossbreed.cli.conventions import CONVENTIONS, MATCHED, MEMORY
from crossbreed.cli.genomes import KINDS, read_genome
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, log_console, print_json
from crossbreed.core.errors import ConfigError, nearest
from crossbreed.core.genome import Architecture, digest, to_yaml
from crossbreed.presets import presets

if TYPE_CHECKING:
    from crossbreed.cli.budgets import BudgetGiven
    from crossbreed.core.budget.matcher import Match
    from crossbreed.core.host import Registry
    from crossbreed.core.search.families import FamilyMatch


def match(
    budget: Annotated[
        Path, typer.Option("--budget", metavar="FILE", help="A study file, or a file with a budget.")
    ],
    genome: Annotated[
        str | None,
        typer.Argument(
            metavar="GENOME|FAMILY",
            help=f"The genome: {KINDS}; or a family of the search space.",
        ),
    ] = None,
    all_families: Annotated[
        bool, typer.Option("--all", help="Match every family of the search space.")
    ] = False,
    space: Annotated[
        str | None,
        typer.Option("--space", metavar="NAME", help="The search space; by default the study file's."),
    ] = None,
    free: Annotated[
        list[str] | None,
        typer.Option(
            "--free",
            metavar="DIMENSION[=LOW..HIGH[:STEP]]",
            help="Free d_model, depth, layers or a mixer's setting too, or bound one; may be repeated.",
        ),
    ] = None,
    solver: Annotated[
        Literal["auto", "descent", "optuna", "enumeration"], typer.Option(help="Force one solver.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the matched genome here.")
    ] = None,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Move free dimensions until a budget is met, and print the certificate.

    A family is tried from each of its starting points. Exit code 2 when nothing meets the budget: the certificate then holds
    the nearest point, and the quantity that cannot move.
    """
    from crossbreed.cli.budgets import read_budget
    from crossbreed.core.budget import matcher
    from crossbreed.core.budget.spans import read_free
    from crossbreed.core.search.families import match_families

    if (genome is None) != all_families:
        raise ConfigError("match takes one GENOME or FAMILY, or --all for every family.")
    if all_families and out is not None:
        raise ConfigError("--out writes one genome; name a family instead of --all.")
    registry = registry_of(plugin)
    given = read_budget(budget, registry)
    freed = read_free(free or [])
    architecture = None if genome is None else _genome(genome, db, registry, given, space)
    if architecture is not None:
        found = matcher.match(
            architecture, given.budget, registry, given.cost_model, free=freed, solver=solver
        )
        _report_one(found, given, json)
    else:
        starts = _families(registry, given, space)
        wanted = starts if genome is None else {genome: starts[genome]}
        goal = given.budget.freeing(freed)
        with _counted(len(wanted)) as counted:
            matches = list(counted(match_families(wanted, goal, registry, given.cost_model, solver)))
        if genome is None:
            _report_all(matches, given, json)
            raise typer.Exit(0 if any(m.feasible for m in matches) else 2)
        if matches[0].match is None:
            raise ConfigError(f"family {genome!r} cannot be costed: {matches[0].reason}")
        found = matches[0].match
        _report_one(found, given, json)
    if not found.certificate.feasible:
        raise typer.Exit(2)
    if out is not None:
        _write(out, to_yaml(found.architecture))
        log_console().print(f"Matched genome written to {escape(str(out))}.")


def _genome(
    text: str, db: str, registry: Registry, given: BudgetGiven, space: str | None
) -> Architecture | None:
    """The genome that the argument names, or None for a family; files and presets go first."""
    if not Path(text).is_file() and text not in presets() and (space or given.space) is not None:
        known = _families(registry, given, space)
        if text in known:
            return None
        try:
            return read_genome(text, db, registry, given.vocab)
        except ConfigError as error:
            hint = nearest(text, known) or f"; families: {', '.join(known)}."
            raise ConfigError(f"{error} It is no family of the search space either{hint}") from error
    return read_genome(text, db, registry, given.vocab)


def _families(registry: Registry, given: BudgetGiven, space: str | None) -> dict[str, list[Architecture]]:
    from crossbreed.core.search.families import families
    from crossbreed.core.search.study_file import SpaceSection
    from crossbreed.core.search.study_setting import open_space

    section = given.space if space is None else SpaceSection(name=space)
    if section is None:
        names = ", ".join(registry.names("space"))
        raise ConfigError(
            f"a budget file names no search space; give a study file, or --space with one of: {names}."
        )
    if given.place is None:
        raise ConfigError(
            "a budget in numbers says neither vocabulary nor width; families need a budget with a reference genome."
        )
    opened, setting, left_out = open_space(section, registry, given.place)
    for sentence in left_out:
        log_console().print(f"Left out: {sentence}", markup=False)
    return families(opened, setting)


@contextmanager
def _counted(total: int) -> Iterator[Any]:
    """Wraps an iterable so that a terminal shows how far it has come."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("matching"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = log_console()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield lambda items: progress.track(items, total=total)


def _report_one(found: Match, given: BudgetGiven, as_json: bool) -> None:
    from crossbreed.cli.certificates import certificate_table, verdict

    if as_json:
        counted = [MATCHED, CONVENTIONS, MEMORY]
        print_json("match", {**_data(found), "ledger": found.ledger.as_dict(), "conventions": counted})
        return
    shape = given.budget.shape
    console = data_console()
    title = f"Certificate at {shape.batch} x {shape.tokens} tokens in {shape.dtype}"
    console.print(certificate_table(found.certificate, title))
    console.print(verdict(found.certificate))
    console.print(f"[bold]hash[/] {digest(found.architecture)}")


def _report_all(matches: list[FamilyMatch], given: BudgetGiven, as_json: bool) -> None:
    from crossbreed.cli.certificates import family_table

    if as_json:
        nothing = dict.fromkeys(("hash", "architecture", "certificate"))
        rows = [
            {
                "family": m.family,
                "feasible": m.feasible,
                "reason": m.reason,
                **(nothing if m.match is None else _data(m.match)),
            }
            for m in matches
        ]
        print_json(
            "match_all",
            {"feasible": any(m.feasible for m in matches), "families": rows, "conventions": [MATCHED]},
        )
        return
    shape = given.budget.shape
    title = f"Families at {shape.batch} x {shape.tokens} tokens in {shape.dtype}"
    console = data_console()
    console.print(family_table(matches, title))
    for m in matches:
        if not m.feasible:
            console.print(f"[bold]{escape(m.family)}[/]: {escape(m.reason or '')}")
    console.print(MATCHED, style="dim")


def _data(found: Match) -> dict[str, Any]:
    return {
        "feasible": found.certificate.feasible,
        "hash": digest(found.architecture),
        "architecture": found.architecture.model_dump(mode="json"),
        "certificate": found.certificate.model_dump(mode="json"),
    }


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"genome file {str(path)!r} cannot be written: {error.strerror}.") from error
