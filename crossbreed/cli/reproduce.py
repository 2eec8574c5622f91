"""``crossbreed reproduce``: run one stored result again from its record, and say how it compares."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, log_console, only_logs, print_json
from crossbreed.cli.search import Executor, RayAddress, RayResources

if TYPE_CHECKING:
    from crossbreed.core.search.reproduce import Difference, Reproduction

SHOWN = 10
"""Differences that are listed; all are counted."""


def reproduce(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run with a curve, as study/number/seed.")],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="The new run's folder, or a store's; default: reproduced/study-number-seed.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="DEVICE", help="cpu or cuda; default: the record's.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads; default: the record's.")
    ] = None,
    executor: Executor = "inline",
    ray_address: RayAddress = None,
    ray_resources: RayResources = None,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a stored run again with its genome, recipe, data and seed, and compare losses and score bit for bit.

    On a Ray cluster its nodes must see DIR under one path. Exit code 0: equal. 1: not equal. 2: it cannot be repeated here, as when its plugins are other ones. The database is only
    read.
    """
    from crossbreed.core.artefacts import Artefacts
    from crossbreed.core.search import executors
    from crossbreed.core.search import reproduce as reproducing
    from crossbreed.core.search.executors.resources import Resources
    from crossbreed.storage.repository import Repository

    registry = registry_of(plugin)
    folder = out or f"reproduced/{run.replace('/', '-')}"
    with Repository.open(db, read_only=True) as repository:
        plan = reproducing.plan(
            repository,
            run,
            registry,
            Artefacts.at(folder),
            device=device,
            threads=threads,
            elsewhere=ray_address is not None,
        )
    place = executors.choose(
        executor,
        workers=1,
        threads=plan.job.threads,
        device=plan.job.device,
        devices=plan.job.devices,
        address=ray_address,
        resources=None if ray_resources is None else Resources.load(ray_resources),
    )
    log = log_console()
    log.print(f"Training {run} again in {folder}: {plan.steps} steps.", markup=False)
    try:
        with only_logs(), _bar(log, plan.steps) as on_step:
            found = plan.run(place, on_step)
    except KeyboardInterrupt:
        log.print(f"Interrupted; {folder} may be removed.", markup=False)
        raise typer.Exit(130) from None
    _print(found, as_json=json)
    if not found.equal:
        raise typer.Exit(1)


@contextlib.contextmanager
def _bar(console: Console, steps: int) -> Iterator[Callable[[int], None]]:
    if not console.is_terminal:
        yield lambda step: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("training", total=steps)
        yield lambda step: progress.update(task, completed=step)


def _print(found: Reproduction, *, as_json: bool) -> None:
    losses = [d for d in found.differences if d.step is not None]
    others = [d for d in found.differences if d.step is None]
    if as_json:
        print_json(
            "reproduce",
            {
                "run": found.run,
                "equal": found.equal,
                "losses": found.losses,
                "losses_different": len(losses),
                "first_difference": _data(losses[0]) if losses else None,
                "largest_difference": max((d for x in losses if (d := _off(x)) is not None), default=None),
                "metrics": found.metrics,
                "metrics_different": [_data(d) for d in others],
                "ended": {"stored": found.ended[0], "again": found.ended[1]},
                "unlike": [{"what": u.what, "stored": u.stored, "here": u.here} for u in found.unlike],
                "folder": found.folder,
            },
        )
        return
    console = data_console()
    for text in _sentences(found, losses, others):
        console.print(text, markup=False, soft_wrap=True)


def _sentences(found: Reproduction, losses: list[Difference], others: list[Difference]) -> Iterator[str]:
    if found.ended[0] != found.ended[1]:
        yield f"{found.run} {found.ended[0]} then, and {found.ended[1]} now."
    if found.equal:
        yield f"{found.run} is reproduced: {found.losses} losses and {found.metrics} metrics are equal bit for bit."
    if losses:
        first = losses[0]
        yield (
            f"{len(losses)} of {found.losses} losses differ, first at step {first.step}: {first.stored!r} stored, "
            f"{first.again!r} now."
        )
        largest = max((d for x in losses if (d := _off(x)) is not None), default=None)
        if largest is not None:
            yield f"The largest difference of a loss is {largest:.3g} nats."
    for metric in others[:SHOWN]:
        off = _off(metric)
        by = "" if off is None else f", {off:.3g} apart"
        yield f"{metric.what}: {metric.stored!r} stored, {metric.again!r} now{by}."
    if len(others) > SHOWN:
        yield f"... and {len(others) - SHOWN} more metrics differ."
    for u in found.unlike:
        yield f"Unlike the record: {u.what} was {u.stored!r}, here it is {u.here!r}."


def _off(d: Difference) -> float | None:
    return None if d.stored is None or d.again is None else abs(d.again - d.stored)


def _data(d: Difference) -> dict[str, Any]:
    return {"what": d.what, "step": d.step, "stored": d.stored, "again": d.again, "difference": _off(d)}
