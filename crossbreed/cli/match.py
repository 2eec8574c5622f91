"""``crossbreed match``: bring one genome to a budget, or say why it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from crossbreed.cli.genomes import read_genome
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, log_console, print_json
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import digest, to_yaml


def match(
    genome: Annotated[
        str,
        typer.Argument(metavar="GENOME", help="A genome file, a preset, or a hash prefix in the database."),
    ],
    budget: Annotated[
        Path, typer.Option("--budget", metavar="FILE", help="A study file, or a file with a budget.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the matched genome here.")
    ] = None,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Move a genome's free dimensions until it meets a budget, and print the certificate.

    Exit code 2 when no legal point meets it: the certificate then holds the nearest point, and the quantity that cannot move.
    """
    from crossbreed.cli.budgets import read_budget
    from crossbreed.cli.certificates import certificate_table, verdict
    from crossbreed.core.budget import matcher

    registry = registry_of(plugin)
    given = read_budget(budget, registry)
    architecture = read_genome(genome, db, registry, given.vocab)
    found = matcher.match(architecture, given.budget, registry, given.cost_model)
    if json:
        print_json(
            "match",
            {
                "feasible": found.certificate.feasible,
                "hash": digest(found.architecture),
                "architecture": found.architecture.model_dump(mode="json"),
                "certificate": found.certificate.model_dump(mode="json"),
                "ledger": found.ledger.as_dict(),
            },
        )
    else:
        shape = given.budget.shape
        console = data_console()
        title = f"Certificate at {shape.batch} x {shape.tokens} tokens in {shape.dtype}"
        console.print(certificate_table(found.certificate, title))
        console.print(verdict(found.certificate))
        console.print(f"[bold]hash[/] {digest(found.architecture)}")
    if not found.certificate.feasible:
        raise typer.Exit(2)
    if out is not None:
        _write(out, to_yaml(found.architecture))
        log_console().print(f"Matched genome written to {escape(str(out))}.")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"genome file {str(path)!r} cannot be written: {error.strerror}.") from error
