"""``crossbreed generate``: go on with a prompt, and see what every router decided on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, RunKey, registry_of
from crossbreed.cli.output import data_console, log_console, print_json, table
from crossbreed.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from crossbreed.core.contracts.task import Task
    from crossbreed.core.lab.generate import Decided, Generated, Sampling

Dtype = Literal["float32", "bfloat16"]
PointOption = Annotated[
    str,
    typer.Option(
        metavar="POINT",
        help="The operating point: own, schedule:SWITCHES, forced:RATE, threshold:SHIFT or depth:L, see the study file; or "
        "fitted:ROUTERS.",
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu or cuda.")]
DtypeOption = Annotated[
    Dtype | None, typer.Option("--dtype", help="Precision; default: the one that the run was trained in.")
]
MOST_RUNS = 12
"""Switches of a mode that are listed; all are in ``--json``."""


def generate(
    run: RunKey,
    prompt: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="What to go on with: text where the task's tokens are text, else its symbols with spaces between, or #ID.",
        ),
    ],
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="New tokens.")] = 32,
    point: PointOption = "own",
    temperature: Annotated[
        float,
        typer.Option(min=0, metavar="T", help="0 takes the likeliest token; above it tokens are drawn."),
    ] = 0.0,
    top_k: Annotated[
        int | None, typer.Option("--top-k", min=1, metavar="K", help="Draw among the K likeliest only.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Go on with a prompt, and show what every router decided about every token that was read.

    The prompt is read in one piece and what follows one token at a time, both through the model's own state. The mode
    follows the model's router, or the schedule of `--point schedule:SWITCHES`, which counts from the end of prompt and new
    tokens together where it counts from an end.
    """
    from crossbreed.core.lab.generate import Sampling
    from crossbreed.core.lab.generate import generate as go_on
    from crossbreed.core.lab.operating_points import longest
    from crossbreed.core.lab.reading import check_room
    from crossbreed.core.search.at_point import at_point, parse_point
    from crossbreed.core.search.trained import load
    from crossbreed.storage.repository import Repository

    asked = parse_point(point)
    if asked.length is not None:
        raise ConfigError(
            f"operating point {point!r} is about evaluation rows; a prompt has the length it has."
        )
    sampling = Sampling(temperature, top_k, seed)
    registry = registry_of(plugin)
    with Repository.open(db, read_only=True) as repository:
        trained = load(repository, run, registry, device)
        model = at_point(repository, trained, asked, registry)
    task = trained.setting.task
    words = task.prompt(prompt)
    limit = longest(model.architecture, registry)
    check_room(len(words), tokens, None if limit is None else limit.tokens, f"prompt {prompt!r}")
    with log_console().status("generating") as status:
        found = go_on(
            model,
            words,
            tokens,
            sampling=sampling,
            point=asked,
            seed=trained.row.seed,
            dtype=dtype or trained.recipe.dtype,
            ending=task.ending,
            progress=lambda done: status.update(f"generating: {done} of {tokens}"),
        )
    if json:
        print_json("generate", {"run": run, "point": asked.name, **_data(found, task, sampling)})
        return
    _print(run, asked.name, found, task)


def _data(found: Generated, task: Task, sampling: Sampling) -> dict[str, Any]:
    every = [*found.prompt, *found.new]
    return {
        "sampling": {
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "seed": sampling.seed,
        },
        "prompt": {"text": task.decode(found.prompt), "tokens": list(found.prompt)},
        "generated": {
            "text": task.decode(found.new),
            "tokens": list(found.new),
            "log_probabilities": list(found.log_probabilities),
        },
        "words": task.words(every),
        "read": found.read,
        "sites": [
            {
                "site": site.site,
                "kind": site.kind,
                "router": site.router,
                "names": list(site.names),
                "choices": list(site.choices),
                "entropies": None if site.entropies is None else list(site.entropies),
                "switches": [{"position": position, "choice": choice} for position, choice in site.runs()]
                if site.kind == "mode"
                else None,
            }
            for site in found.sites
        ],
    }


def _print(run: str, point: str, found: Generated, task: Task) -> None:
    from rich.text import Text

    from crossbreed.cli.lanes import lanes, legend

    console = data_console()
    console.print(Text(f"{run} at {point}", "bold"))
    console.print(
        Text(printable(task.decode(found.prompt))).append(
            ("" if task.separator is not None else " ") + printable(task.decode(found.new)), "bold"
        )
    )
    console.print()
    words = task.words([*found.prompt, *found.new])
    for line in lanes(found, words, console.width, spaced=_spaced(task, words)):
        console.print(line, soft_wrap=True)
    if not found.sites:
        console.print("Nothing in this model is routed.")
        return
    console.print()
    for sentence in (*legend(found.sites), "blank: not asked, or not read (the last new token)"):
        console.print(sentence, style="dim", markup=False)
    for site in found.sites:
        if site.kind == "mode":
            console.print(_switches(site), markup=False)
    console.print(_shares(found))


def _spaced(task: Task, words: Sequence[str]) -> bool:
    """Whether a space between tokens tells them apart: symbols, and tokens of text that are mostly longer than a letter."""
    return task.separator is None or 2 * sum(len(word) > 1 for word in words) > len(words)


def printable(text: str) -> str:
    """Text that moves no cursor and changes no colour, whatever a model says."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _switches(site: Decided) -> str:
    runs = site.runs()
    listed = ", ".join(f"{site.names[choice]} from {position}" for position, choice in runs[:MOST_RUNS])
    more = f" and {len(runs) - MOST_RUNS} more" if len(runs) > MOST_RUNS else ""
    return f"Mode: {listed}{more}."


def _shares(found: Generated) -> Table:
    made = table(
        "What was decided",
        ["site", "router", "choices", ("prompt", "right"), ("new", "right")],
        caption="Shares of the asked tokens per choice, among those of the prompt and the new ones that were read.",
    )
    cut = len(found.prompt)
    for site in found.sites:
        made.add_row(
            site.site,
            site.router,
            " / ".join(site.names),
            *(_share(site.shares(*part)) for part in ((0, cut), (cut, None))),
        )
    return made


def _share(shares: tuple[float, ...] | None) -> str:
    return "-" if shares is None else " / ".join(f"{share:.3f}" for share in shares)
