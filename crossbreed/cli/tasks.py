"""``crossbreed tasks``: what candidates can be trained and judged on."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from rich.markup import escape

from crossbreed.cli.options import Commands, Debug, Json, Plugins, examples, registry_of
from crossbreed.cli.output import data_console, print_json, table
from crossbreed.cli.settings import settings_of
from crossbreed.core.host import Registry

tasks = Commands(name="tasks", help="What candidates are trained and judged on.", no_args_is_help=True)


@tasks.command("list", epilog=examples("crossbreed tasks list", "crossbreed tasks list --plugin my_task.py"))
def list_tasks(plugin: Plugins = None, json: Json = False, debug: Debug = False) -> None:
    """List the tasks that are registered."""
    registry = registry_of(plugin)
    found = [_summary(registry, name) for name in registry.names("task")]
    if json:
        print_json("tasks", {"tasks": found})
        return
    listed = table("", ["task", "from", "what it is"])
    for item in found:
        listed.add_row(*map(escape, (item["name"], item["source"], item["summary"])))
    data_console().print(listed)


@tasks.command("show", epilog=examples("crossbreed tasks show recall", "crossbreed tasks show recall --json"))
def show_task(
    name: Annotated[str, typer.Argument(metavar="TASK", help="A name from `crossbreed tasks list`.")],
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show one task and its settings."""
    registry = registry_of(plugin)
    config = registry.descriptor("task", name).config
    item = {
        **_summary(registry, name),
        "about": inspect.cleandoc(config.__doc__ or ""),
        "settings": settings_of(config),
    }
    if json:
        print_json("task", item)
        return
    console = data_console()
    console.print(f"[bold]{escape(name)}[/] from {escape(item['source'])}: {escape(item['summary'])}")
    listed = table("", ["setting", "type", "default", "meaning"])
    for setting in item["settings"]:
        default = "required" if setting["required"] else str(setting["default"])
        listed.add_row(*map(escape, (setting["name"], setting["type"], default, setting["meaning"])))
    console.print(listed)
    console.print(escape(item["about"]))


def _summary(registry: Registry, name: str) -> dict[str, Any]:
    entry = registry.registered("task", name)
    return {
        "name": name,
        "owner": entry.owner.name,
        "source": entry.owner.source,
        "identity": entry.owner.identity,
        "summary": entry.descriptor.summary,
    }
