"""``crossbreed tasks``: what candidates can be trained and judged on."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from crossbreed.cli.options import Commands, Debug, Json, Plugins, examples, registry_of
from crossbreed.cli.output import data_console, print_json, table
from crossbreed.cli.settings import given_settings, settings_of
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


@tasks.command(
    "show",
    epilog=examples(
        "crossbreed tasks show recall", "crossbreed tasks show bytes --set path=text.txt --samples 1"
    ),
)
def show_task(
    name: Annotated[str, typer.Argument(metavar="TASK", help="A name from `crossbreed tasks list`.")],
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A setting of the task whose samples are shown; repeatable."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Evaluation items to show.")] = 3,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show one task, its settings, and evaluation items as people read them."""
    registry = registry_of(plugin)
    config = registry.descriptor("task", name).config
    item = {
        **_summary(registry, name),
        "about": inspect.cleandoc(config.__doc__ or ""),
        "settings": settings_of(config),
        "samples": _samples(registry, name, given or [], samples),
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
    if item["samples"] is None:
        console.print(
            f"Samples need its required settings: --set {_required(item['settings'])}=VALUE.", style="dim"
        )
        return
    for sample in item["samples"]:
        console.print()
        console.print(_read(sample))
    if item["samples"]:
        how = (
            "Every token is scored with the one that follows it."
            if all(map(_is_text, item["samples"]))
            else "An arrow leads to what is to be said at a scored token."
        )
        console.print(f"\nEvaluation items. {how}", style="dim")


def _samples(registry: Registry, name: str, given: list[str], count: int) -> list[dict[str, Any]] | None:
    """The first evaluation items: each token as the task spells it, and what is to be said there (null: not scored). None for a
    task whose required settings are not given."""
    from crossbreed.core.contracts.task import IGNORE

    descriptor = registry.descriptor("task", name)
    needed = {field for field, info in descriptor.config.model_fields.items() if info.is_required()}
    settings = given_settings(given)
    if count == 0 or not needed <= settings.keys():
        return None if count else []
    task = registry.factory("task", name)(registry.config("task", name, settings))
    batch = next(iter(task.evaluation(count)))
    shown = []
    for tokens, labels in zip(
        batch.tokens_BT[:count].tolist(), batch.labels_BT[:count].tolist(), strict=True
    ):
        answers = task.words([label for label in labels if label != IGNORE])
        due = iter(answers)
        shown.append(
            {"words": task.words(tokens), "targets": [None if x == IGNORE else next(due) for x in labels]}
        )
    return shown


def _required(settings: list[dict[str, Any]]) -> str:
    return next(str(setting["name"]) for setting in settings if setting["required"])


def _is_text(sample: dict[str, Any]) -> bool:
    """Whether every token's target is the token that follows it, so that targets need not be shown."""
    words, targets = sample["words"], sample["targets"]
    return None not in targets and words[1:] == targets[:-1]


def _read(sample: dict[str, Any]) -> Text:
    """A sample as words: the characters of a text run together; elsewhere what is due at scored tokens behind an arrow."""
    words, targets = sample["words"], sample["targets"]
    plain = _is_text(sample)
    gap = "" if plain and all(len(word) == 1 for word in words[:64]) else " "
    text = Text()
    for word, target in zip(words, targets, strict=True):
        due = not plain and target is not None
        text.append(f"{word}→{target}" if due else word, "bold" if due else "")
        text.append(gap)
    return text


def _summary(registry: Registry, name: str) -> dict[str, Any]:
    entry = registry.registered("task", name)
    return {
        "name": name,
        "owner": entry.owner.name,
        "source": entry.owner.source,
        "identity": entry.owner.identity,
        "summary": entry.descriptor.summary,
    }
