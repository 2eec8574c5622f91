"""``crossbreed study``: the studies of a database."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import yaml
from rich.markup import escape

from crossbreed.cli.options import (
    DEFAULT_DB,
    Commands,
    Db,
    Debug,
    Json,
    Plugins,
    StudyName,
    examples,
    registry_of,
)
from crossbreed.cli.output import data_console, print_json, table

if TYPE_CHECKING:
    from crossbreed.storage.repository import Repository
    from crossbreed.storage.rows import StudyRow

study = Commands(name="study", help="The studies of a database.", no_args_is_help=True)


@study.command(
    "list", epilog=examples("crossbreed study list", "crossbreed study list --db demo/crossbreed.db")
)
def list_studies(
    db: Db = DEFAULT_DB, plugin: Plugins = None, json: Json = False, debug: Debug = False
) -> None:
    """List the studies with their candidates by state, and who drives them now."""
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    with Repository.open(db, read_only=True) as repository:
        found = [summary(repository, row) for row in repository.list_studies()]
    if json:
        print_json("studies", {"studies": found})
        return
    listed = table("", ["study", "task", "since (UTC)", ("candidates", "right"), "by state", "driven by"])
    for item in found:
        driver = item["driver"]
        listed.add_row(
            escape(item["name"]),
            escape(item["task"]),
            item["created_at"][:16].replace("T", " "),
            str(sum(item["trials"].values())),
            ", ".join(f"{count} {state}" for state, count in item["trials"].items()),
            "-" if driver is None else escape(_driver_words(driver)),
        )
    data_console().print(listed)


@study.command(
    "show", epilog=examples("crossbreed study show quickstart", "crossbreed study show quickstart --json")
)
def show_study(
    name: StudyName,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a study's file as it was stored, and every candidate with its state and cause."""
    from crossbreed.cli.front import growth_of
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    with Repository.open(db, read_only=True) as repository:
        row = repository.open_study(name)
        item = summary(repository, row)
        candidates: list[dict[str, Any]] = [
            {
                "number": trial.number,
                "family": trial.family,
                "origin": trial.origin,
                "state": trial.state,
                "cause": trial.cause,
                "hash": trial.hash,
            }
            for trial in repository.trials(row.id)
        ]
        growth = growth_of(repository, row)
        files = [{"path": f.path, "sha256": f.sha256} for f in repository.plugin_files(row.id)]
    if json:
        print_json(
            "study",
            {**item, "spec": row.spec, "plugin_files": files, "candidates": candidates, "growth": growth},
        )
        return
    console = data_console()
    console.print(escape(yaml.safe_dump(row.spec, sort_keys=False, allow_unicode=True)))
    for file in files:
        console.print(f"plugin file {escape(file['path'])} sha256:{file['sha256'][:12]}")
    listed = table("", [("#", "right"), "family", "origin", "state", "hash", "cause"])
    for entry in candidates:
        cells = (entry["family"], entry["origin"], entry["state"], entry["hash"][:12], entry["cause"] or "")
        listed.add_row(str(entry["number"]), *map(escape, cells))
    console.print(listed)
    if growth:
        last = growth[-1]
        point = ", ".join(f"{name} {value:g}" for name, value in last["reference"].items())
        console.print(
            f"Hypervolume of the front {last['hypervolume']:g} from the reference point {point}: last changed after "
            f"{last['tokens']:,} training tokens, {last['seconds']:.0f} s and {last['trials']} trials "
            f"({len(growth)} changes; --json lists them).",
            markup=False,
        )


def summary(repository: Repository, row: StudyRow) -> dict[str, Any]:
    """A study in a few words, as plain data."""
    from crossbreed.core.search import orders

    driver = repository.driver(row.id)
    states = Counter(trial.state for trial in repository.trials(row.id))
    return {
        "name": row.name,
        "task": row.spec.get("task", {}).get("name", ""),
        "created_at": row.created_at.isoformat(),
        "trials": dict(sorted(states.items())),
        "driver": None
        if driver is None
        else {
            "host": driver.driver.host,
            "pid": driver.driver.pid,
            "paused": orders.paused(repository, row.id, driver),
        },
    }


def _driver_words(driver: dict[str, Any]) -> str:
    words = f"process {driver['pid']} on {driver['host']}"
    return f"{words} (paused)" if driver["paused"] else words
