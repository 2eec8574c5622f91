"""``crossbreed tasks``: what candidates can be trained and judged on."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from crossbreed.cli.options import Commands, Debug, Json, Plugins, examples, registry_of
from crossbreed.cli.output import data_console, print_json, table
from crossbreed.cli.settings import given_settings, settings_of
from crossbreed.core.host import Registry

if TYPE_CHECKING:
    from crossbreed.core.contracts.task import Task

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
        "crossbreed tasks show recall --overlap",
        "crossbreed tasks show bytes --set path=text.txt --samples 1",
        "crossbreed tasks show text --set path=stories.jsonl --set tokenizer=tokenizer.json",
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
    overlap: Annotated[
        bool,
        typer.Option("--overlap", help="Count what training and evaluation share; long texts take a while."),
    ] = False,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show one task: its settings, how it judges, whether a model was seen to learn it, and evaluation items as people read them."""
    registry = registry_of(plugin)
    descriptor = registry.descriptor("task", name)
    config, proven = descriptor.config, descriptor.proven
    task = _built(registry, name, given or [])
    item = {
        **_summary(registry, name),
        "about": inspect.cleandoc(config.__doc__ or ""),
        "settings": settings_of(config),
        "proven": None if proven is None else asdict(proven),
        "judges": None if task is None else _judges(task),
        "overlap": task.overlap()._asdict() if task is not None and overlap else None,
        "samples": None if task is None else _samples(task, samples),
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
    console.print()
    for line in (*_how_it_judges(item), _whether_learned(item)):
        console.print(escape(line))
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


def _built(registry: Registry, name: str, given: list[str]) -> Task | None:
    """The task; None where its required settings are not given."""
    settings = given_settings(given)
    fields = registry.descriptor("task", name).config.model_fields
    if not {field for field, info in fields.items() if info.is_required()} <= settings.keys():
        return None
    task: Task = registry.factory("task", name)(registry.config("task", name, settings))
    return task


def _judges(task: Task) -> dict[str, Any]:
    """What candidates are judged by, and on which items."""
    score = task.score
    return {
        "score": score.name,
        "direction": score.direction,
        "bound": score.bound,
        "on": list(score.on),
        "chance": task.chance,
        "baselines": task.baselines(),
        "vocab": task.vocab,
        "length": task.length,
        "items": sum(len(batch.tokens_BT) for batch in task.evaluation(256)),
        "items_sha256": task.evaluation_hash(),
    }


def _samples(task: Task, count: int) -> list[dict[str, Any]]:
    """The first evaluation items: each token as the task spells it, and what is to be said there (null: not scored)."""
    if count == 0:
        return []
    batch = next(iter(task.evaluation(count)))
    shown = []
    for tokens, labels, judged in zip(
        *(rows[:count].tolist() for rows in (batch.tokens_BT, batch.labels_BT, task.judged(batch))),
        strict=True,
    ):
        due = iter(task.words([label for label, counts in zip(labels, judged, strict=True) if counts]))
        shown.append(
            {"words": task.words(tokens), "targets": [next(due) if counts else None for counts in judged]}
        )
    return shown


def _how_it_judges(item: dict[str, Any]) -> Iterator[str]:
    judges, overlap = item["judges"], item["overlap"]
    if judges is None:
        return
    best = "" if judges["bound"] is None else f", at best {judges['bound']:g}"
    where = f" on positions of class {', '.join(judges['on'])}" if judges["on"] else ""
    guesses = [
        f"a guess {judges['chance']:.4g}",
        *(f"{name} {value:.4g}" for name, value in judges["baselines"].items()),
    ]
    yield f"Judged by {judges['score']} ({judges['direction']}){where}{best}: {', '.join(guesses)}."
    yield (
        f"{judges['items']} evaluation items of {judges['length']} tokens, {judges['vocab']} token ids, SHA-256 "
        f"{judges['items_sha256'][:12]}."
    )
    if overlap is not None:
        yield (
            f"Overlap: {overlap['shared']} of {overlap['evaluation']} different evaluation items are among {overlap['training']} of "
            f"training."
        )


def _whether_learned(item: dict[str, Any]) -> str:
    found = item["proven"]
    if found is None:
        return "No settings are recorded with which a small model was seen to learn it."
    settings = ", ".join(f"{name}={value}" for name, value in found["settings"].items()) or "its defaults"
    seeds = "with one seed" if found["seeds"] == 1 else f"with each of {found['seeds']} seeds"
    return (
        f"Seen to be learned with {settings}: {found['model']} ({found['model_parameters']:,} parameters) scored at least "
        f"{found['score']:.3f} {seeds} after {found['tokens']:,} tokens."
    )


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
