"""``crossbreed study pause``, ``resume`` and ``stop``: orders to a search that runs in another process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, print_json

if TYPE_CHECKING:
    from crossbreed.core.search.orders import Order

StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="A study that is being searched.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0, help="Longest wait for the search's answer.")
]
ANSWER_S = 30.0
WORDS: dict[Order, str] = {
    "pause": "pauses: every run stops at its next step with a checkpoint, and nothing new begins. `crossbreed study resume` "
    "goes on.",
    "resume": "goes on from its checkpoints.",
    "stop": "stops: every run stops at its next step with a checkpoint, then the search ends. `crossbreed search` goes on.",
}


def pause(
    name: StudyName,
    wait: Wait = ANSWER_S,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Pause a running search: runs leave checkpoints and free the device; the search waits and keeps the study."""
    _give("pause", name, wait, db, plugin, as_json=json)


def resume(
    name: StudyName,
    wait: Wait = ANSWER_S,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a paused search go on."""
    _give("resume", name, wait, db, plugin, as_json=json)


def stop(
    name: StudyName,
    wait: Wait = ANSWER_S,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop a running search in order, as Ctrl-C in its own window would; the same `crossbreed search` continues it."""
    _give("stop", name, wait, db, plugin, as_json=json)


def _give(order: Order, name: str, wait: float, db: str, plugin: list[Path] | None, *, as_json: bool) -> None:
    from crossbreed.core.search import orders
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    with Repository.open(db, create=False) as repository:
        driver, heard = orders.give(repository, name, order, wait)
    where = {"host": driver.driver.host, "pid": driver.driver.pid}
    if as_json:
        print_json("study_order", {"study": name, "order": order, "driver": where, "heard": heard})
    elif heard:
        data_console().print(f"{name} {WORDS[order]}", markup=False, soft_wrap=True)
    else:
        data_console().print(
            f"Process {where['pid']} on {where['host']}, which drives {name}, has not answered within {wait:g} s. The order "
            "stands until it hears it, or ends.",
            markup=False,
            soft_wrap=True,
        )
    if not heard:
        raise typer.Exit(1)
