"""``crossbreed show``: a genome and what it costs, without building weights."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.markup import escape

from crossbreed.cli.bookkeeping import Bookkeeping, counted
from crossbreed.cli.conventions import CONVENTIONS, MEMORY
from crossbreed.cli.genomes import KINDS, Genome, cost_model, tree
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, log_console, print_json, si, size, table
from crossbreed.cli.providers import explained
from crossbreed.core.errors import UnknownName
from crossbreed.core.genome import Architecture, digest, to_yaml
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.presets import Preset, Published

Dtype = Literal["float32", "bfloat16", "float16", "float64"]


def show(
    genome: Annotated[
        str,
        typer.Argument(metavar="GENOME", help=f"The genome: {KINDS}."),
    ],
    tokens: Annotated[int, typer.Option(min=1, help="Tokens in a sequence, for the ledger.")] = 1024,
    batch: Annotated[int, typer.Option(min=1, help="Sequences in a batch, for the ledger.")] = 1,
    dtype: Annotated[
        Dtype, typer.Option(help="Type of weights and activations, for the ledger.")
    ] = "float32",
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a genome in its canonical form, as a tree, and its ledger. Builds no weights."""
    registry = registry_of(plugin)
    found = Genome.find(genome, db)
    try:
        architecture = found.build(registry)
    except UnknownName as error:
        # A plugin that was removed leaves its genomes readable; what they cost needs it.
        if json or not found.stored:
            raise
        _print_genome(found.as_stored())
        why = str(explained(error, db, plugin)).rstrip(".")
        log_console().print(
            f"Shown as it was stored, without its ledger: {why}. `crossbreed front --all` has its results.",
            markup=False,
        )
        return
    ledger = cost_model(registry).estimate(architecture, Shape(batch, tokens, dtype))
    preset = found.preset
    if json:
        print_json(
            "show",
            {
                "hash": digest(architecture),
                "preset": None if preset is None else preset.name,
                "architecture": architecture.model_dump(mode="json"),
                "ledger": ledger.as_dict(),
                "bookkeeping": asdict(Bookkeeping.of(ledger)),
                "published": [
                    {**asdict(figure), "counted": counted(figure, ledger)} for figure in _published(preset)
                ],
                "identities": registry.identities(architecture),
                "conventions": [CONVENTIONS, MEMORY],
            },
        )
        return
    console = data_console()
    if preset is not None:
        console.print(f"[bold]{escape(preset.name)}[/] {escape(preset.summary)}")
    _print_genome(architecture)
    print_ledger(ledger)
    print_bookkeeping(Bookkeeping.of(ledger))
    print_published(_published(preset), ledger)
    console.print(CONVENTIONS, style="dim")


def _print_genome(architecture: Architecture) -> None:
    console = data_console()
    console.print(f"[bold]hash[/] {digest(architecture)}")
    console.print(escape(to_yaml(architecture)))
    console.print(tree(architecture))


def print_bookkeeping(books: Bookkeeping) -> None:
    """Parameters as papers count them."""
    counts = table("Parameters as papers count them", ["quantity", ("amount", "right")])
    counts.add_row("in matrices that one token uses", f"{books.active_matrix_parameters:,}")
    counts.add_row("in all matrices", f"{books.stored_matrix_parameters:,}")
    counts.add_row(
        "in small tensors (convolutions, decays, gates of recurrences, gains)", f"{books.small_parameters:,}"
    )
    if books.shared_matrix_parameters is not None:
        counts.add_row(
            "in matrices that all modes share, without embeddings", f"{books.shared_matrix_parameters:,}"
        )
        counts.add_row("their share of what one token uses", f"{books.shared_of_active:.2%}")
        counts.add_row("their share of what is stored", f"{books.shared_of_stored:.2%}")
    data_console().print(counts)


def print_published(figures: tuple[Published, ...], ledger: Ledger) -> None:
    """What a preset's source states beside what is counted here."""
    if not figures:
        return
    listed = table(
        "Published figures",
        ["quantity", ("published", "right"), ("here", "right"), ("difference", "right"), "source"],
    )
    for figure in figures:
        here = counted(figure, ledger)
        listed.add_row(
            figure.quantity,
            f"{figure.value:,}",
            f"{here:,}",
            f"{here - figure.value:+,}",
            escape(figure.source),
        )
    data_console().print(listed)


def _published(preset: Preset | None) -> tuple[Published, ...]:
    return () if preset is None else preset.published


def print_ledger(ledger: Ledger) -> None:
    """The ledger as tables: totals and parts."""
    console = data_console()
    totals = table(
        f"Ledger at {ledger.batch} x {ledger.tokens} tokens in {ledger.dtype}",
        ["per token", ("algorithmic FLOPs", "right"), ("executed FLOPs", "right")],
    )
    for phase, name in (
        ("training", "training (forward + backward)"),
        ("prefill", "prefill"),
        ("decode", "decode"),
    ):
        counts = asdict(ledger)
        totals.add_row(
            name,
            si(counts[f"{phase}_flops_per_token"], 4),
            si(counts[f"executed_{phase}_flops_per_token"], 4),
        )
    console.print(totals)
    amounts = table("", ["quantity", ("amount", "right")])
    amounts.add_row("parameters (tied once)", f"{ledger.parameters:,}")
    amounts.add_row("parameters one token uses", f"{ledger.active_parameters:,}")
    amounts.add_row("parameters without embeddings", f"{ledger.non_embedding_parameters:,}")
    amounts.add_row("weights", size(ledger.weight_bytes))
    amounts.add_row(f"decode state of one sequence at {ledger.tokens} tokens", size(ledger.state_bytes))
    amounts.add_row("memory (weights + decode state)", size(ledger.memory_bytes))
    amounts.add_row("bytes moved per decoded token", size(ledger.decode_traffic_bytes_per_token))
    console.print(amounts)
    parts = table(
        "Parts",
        [
            "site",
            "part",
            "rates",
            ("parameters", "right"),
            ("training FLOPs/token", "right"),
            ("decode FLOPs/token", "right"),
            ("state", "right"),
        ],
    )
    for part in ledger.parts:
        parts.add_row(
            part.site,
            part.name,
            " ".join(f"{rate:.3g}" for rate in part.rates),
            f"{part.parameters:,}",
            si(part.training_flops_per_token, 4),
            si(part.decode_flops_per_token, 4),
            size(part.state_bytes),
        )
    console.print(parts)
