"""``crossbreed fit-router``: replace a trained run's entropy probes by small networks that decide alike."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, RunKey, registry_of
from crossbreed.cli.output import data_console, log_console, print_json, si, table

if TYPE_CHECKING:
    from crossbreed.core.host import Registry
    from crossbreed.core.lab.fit_router import Fitted
    from crossbreed.core.lab.records import Profiled
    from crossbreed.core.search.trained import TrainedRun
    from crossbreed.storage.repository import Repository


def fit_router(
    run: RunKey,
    steps: Annotated[int, typer.Option(min=1, help="Steps of the fit, for each router.")] = 2000,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens to fit on, at most, for each router.")] = 32_768,
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu or cuda.")] = "cpu",
    profile: Annotated[bool, typer.Option(help="Measure the speed of the result too.")] = True,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fit small networks that predict the entropies of a trained run's gates, and use them instead (AMOR's distilled
    router). For a run whose blocks are gated by `entropy_gate`.

    Fitted on every second evaluation row, judged on the rows between. The result is a model and a genome beside the run's
    files, and an operating point of the run. The run itself stays as it is, whenever this is interrupted.
    """
    from crossbreed.core.search import fitted as keeping
    from crossbreed.core.search.trained import load
    from crossbreed.storage.repository import Repository

    registry = registry_of(plugin)
    try:
        with Repository.open(db, create=False) as repository:
            trained = load(repository, run, registry, device)
            keeping.check_finished(trained)
            found = _fit(trained, registry, steps, tokens)
            measured = _measure(trained, found) if profile else None
            settings = keeping.store(repository, trained, found, measured)
            name = keeping.point_name(found)
            _report(run, name, found, measured, settings, _own_speed(repository, trained), as_json=json)
    except KeyboardInterrupt:
        log_console().print(f"Interrupted; run {run} is as it was. Fit it again to go on.", markup=False)
        raise typer.Exit(130) from None


def _fit(run: TrainedRun, registry: Registry, steps: int, tokens: int) -> Fitted:
    from crossbreed.core.lab.fit_router import fit_routers

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=log_console(), transient=True) as bar:
        task = bar.add_task("reading the text", total=None)
        return fit_routers(
            run.model,
            run.setting.task,
            registry,
            steps=steps,
            tokens=tokens,
            batch=run.recipe.eval_batch,
            seed=run.row.seed,
            dtype=run.recipe.dtype,
            progress=lambda what, done, total: bar.update(
                task, description=what, completed=done, total=total
            ),
        )


def _measure(run: TrainedRun, fitted: Fitted) -> Profiled:
    from crossbreed.core.lab import lease
    from crossbreed.core.lab.operating_points import OWN
    from crossbreed.core.lab.profile import profile
    from crossbreed.core.search.fitted import point_name

    device = next(fitted.model.parameters()).device
    with (
        log_console().status("measuring the speed") as status,
        lease.alone(device, f"fit-router {run.row.key}", waiting=lambda why: status.update(escape(why))),
    ):
        found = profile(fitted.model, run.setting.task, OWN, seed=run.row.seed, dtype=run.recipe.dtype)
    return replace(found, point=point_name(fitted))


def _own_speed(repository: Repository, run: TrainedRun) -> dict[str, float]:
    """Speeds of the run at its own decisions, as they were stored."""
    for detail in repository.trial_detail(run.row.study_id, run.row.number).runs:
        if detail.run.id == run.row.id and "own" in detail.points:
            return {m.metric: m.median for m in detail.points["own"].speeds}
    return {}


def _report(
    run: str,
    name: str,
    fitted: Fitted,
    measured: Profiled | None,
    settings: dict[str, Any],
    own: dict[str, float],
    *,
    as_json: bool,
) -> None:
    speeds = {} if measured is None else {m.metric: m.median for m in measured.measurements}
    if as_json:
        print_json(
            "fit_router",
            {
                "run": run,
                "point": name,
                "genome": settings["genome"],
                "checkpoint": settings["checkpoint"],
                "judged_rows": fitted.fitted.rows,
                "native_score": fitted.native.score,
                "fitted_score": fitted.fitted.score,
                "sites": [asdict(site) for site in fitted.sites],
                "speeds": speeds,
                "native_speeds": own,
            },
        )
        return
    console = data_console()
    columns = ("MSE", "rank correlation", "offset", "rate before", "rate after", "equal decisions")
    made = table(
        f"Routers of {run}, fitted",
        ["site", *((heading, "right") for heading in columns)],
        caption="MSE of the predicted entropy before the offset that matches the rate; all on rows that were not fitted on, in "
        "the stream of the run's own routers.",
    )
    for site in fitted.sites:
        shares = (site.native_rate, site.fitted_rate, site.agreement)
        made.add_row(
            site.site,
            f"{site.mse:.2e}",
            f"{site.rank_correlation:.3f}",
            f"{site.offset:+.1e}",
            *(f"{share:.3f}" for share in shares),
        )
    console.print(made)
    console.print(
        f"Score on {fitted.fitted.rows} rows: {fitted.fitted.score:.4g}, with the run's own routers {fitted.native.score:.4g}."
    )
    for metric, speed in speeds.items():
        before = f" (own routers: {si(own[metric])}, measured when it was trained)" if metric in own else ""
        console.print(f"{metric.replace('_per_s', '/s').replace('_', ' ')}: {si(speed)}{before}")
    console.print(
        f"Kept as operating point {name} of {run}; its genome is {settings['genome'][:12]}, its weights {settings['checkpoint']}.",
        markup=False,
    )
