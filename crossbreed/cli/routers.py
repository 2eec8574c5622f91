"""``crossbreed routers``: what the routers of a trained run decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, RunKey, registry_of
from crossbreed.cli.output import data_console, log_console, print_json

if TYPE_CHECKING:
    from crossbreed.core.search.analysed import RunAnalytics

KINDS = ("decisions", "text", "agreement", "switches", "experts", "depth_attention")


def routers(
    run: RunKey,
    point: Annotated[
        str,
        typer.Option(
            metavar="POINT",
            help="The operating point: own, forced:RATE or schedule:SWITCHES, see the study file; or fitted:ROUTERS.",
        ),
    ] = "own",
    rows: Annotated[
        int | None, typer.Option(min=1, help="Look anew, at so many evaluation rows at most.")
    ] = None,
    switch: Annotated[
        int | None,
        typer.Option(
            metavar="POSITION",
            help="Look anew, at switches of the reading mode at this position; default: half the text.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu or cuda, for looking.")] = "cpu",
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what the routers of a trained run decide: rates by site, position and token class, agreement with decode, the
    relation to the loss, loss around mode switches, the use of experts and attention over depths.

    What is stored is shown; what is missing is found from the run's last checkpoint, and stored.
    """
    from crossbreed.core.search import analysed
    from crossbreed.core.search.at_point import parse_point
    from crossbreed.storage.repository import Repository

    registry = registry_of(plugin)
    asked = parse_point(point)
    with Repository.open(db, read_only=True) as repository:
        found = None if rows or switch is not None else analysed.stored(repository, run, asked)
        if found is not None:
            _print(found, as_json=json)
            return
        log_console().print(f"Looking at {run} at {asked.name} ...", markup=False)
        try:
            found = analysed.look(
                repository, run, asked, registry, device=device, rows=rows, switch_at=switch
            )
        except KeyboardInterrupt:
            log_console().print("Interrupted; nothing was stored. Run this again to look again.")
            raise typer.Exit(130) from None
    with Repository.open(db, create=False) as repository:
        analysed.keep(repository, found)
    _print(found, as_json=json)


def _print(found: RunAnalytics, *, as_json: bool) -> None:
    if as_json:
        print_json(
            "routers",
            {
                "run": found.run,
                "point": found.point,
                "trained_tokens": found.tokens,
                "rows": found.rows,
                "realised": found.realised,
                **{kind: found.kinds.get(kind) for kind in KINDS},
            },
        )
        return
    from crossbreed.cli.router_tables import tables

    console = data_console()
    for made in tables(found):
        console.print(made)
