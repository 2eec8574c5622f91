"""``crossbreed search``: search a study, or say what a search would do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, log_console, only_logs, print_json, program
from crossbreed.core.errors import InfeasibleBudget

if TYPE_CHECKING:
    from crossbreed.core.genome import Architecture
    from crossbreed.core.host import Registry
    from crossbreed.core.search.candidates import Candidate
    from crossbreed.core.search.study import Outcome, Study
    from crossbreed.core.search.study_file import StudyFile

Executor = Annotated[
    Literal["ray", "inline"], typer.Option(help="Ray workers, or this process, one run at a time.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address", metavar="ADDRESS", help="Join this Ray cluster instead of starting a local one."
    ),
]
RayResources = Annotated[
    Path | None,
    typer.Option(
        "--ray-resources",
        metavar="FILE",
        help="GPUs, custom resources, placement and runtime environment of each Ray worker.",
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Runs at once; default: one per GPU, else one per CPU core.")
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="cpu or cuda; default: a GPU if there is one."),
]


def search(
    study: Annotated[
        Path, typer.Argument(metavar="STUDY", help="A study file; `crossbreed init` writes one.")
    ],
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    executor: Executor = "ray",
    ray_address: RayAddress = None,
    ray_resources: RayResources = None,
    workers: Workers = None,
    device: Device = None,
    max_hours: Annotated[
        float | None, typer.Option(min=0.001, help="Stop this session after so many hours.")
    ] = None,
    max_trials: Annotated[
        int | None, typer.Option(min=1, help="Propose no more once the study holds so many candidates.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Begin nothing more once the study has trained so many tokens.")
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="One worker and a fixed order: the same study again.")
    ] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Help the process that drives this study: train what waits.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Train nothing: show families, certificates, time and disk.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Search a study until its front has all its seeds. Interrupted and run again, it continues.

    Ctrl-C once stops in order, with a checkpoint of every run; twice at once. Exit code 130 after either.
    """
    from crossbreed.core.search.study_file import StudyFile

    registry = registry_of(plugin)
    file = StudyFile.load(study)
    if plan:
        from crossbreed.cli.planning import show_plan

        show_plan(file, registry, workers=1 if deterministic else workers, device=device, as_json=json)
        return
    place: dict[str, Any] = {
        "executor": executor,
        "address": ray_address,
        "resources": ray_resources,
        "workers": workers,
        "device": device,
    }
    limits = {"max_hours": max_hours, "max_trials": max_trials, "max_tokens": max_tokens}
    options = {**place, **limits, "deterministic": deterministic, "join": join}
    again = resume_command(["search", str(study)], db, plugin, **options)
    outcome, found = drive(file, registry, db, again, as_json=json, **options)
    report(found, outcome, db, as_json=json)


def drive(
    file: StudyFile,
    registry: Registry,
    db: str,
    again: str,
    *,
    named: Sequence[Architecture] = (),
    as_json: bool = False,
    **options: Any,
) -> tuple[Outcome, Study]:
    """Run a study with a live view, or lines of JSON. When interrupted, print the command that goes on, and exit 130.

    Raises InfeasibleBudget when no candidate of the finished study meets the budget.
    """
    from crossbreed.cli.live import SearchView
    from crossbreed.core.search.executors.resources import Resources
    from crossbreed.core.search.study import Study

    log = log_console()
    if options.get("resources") is not None:
        options["resources"] = Resources.load(options["resources"])
    begin = Study.join if options.get("join") else Study.start
    with begin(db, file, registry) as study:
        for sentence in study.notes:
            log.print(sentence, markup=False)
        try:
            with only_logs(), SearchView(file.name, study.objectives, log, as_json=as_json) as view:
                outcome = study.run(named=named, on_progress=view.show, **options)
        except KeyboardInterrupt:
            _interrupted(again)
    if outcome.end == "interrupted":
        _interrupted(again)
    if outcome.end == "stopped":
        log.print(f"Stopped by an order; everything reported is stored. To go on: {again}", markup=False)
    elif outcome.rule is not None:
        log.print(f"{outcome.rule} To go on: {again}", markup=False, soft_wrap=True)
    if outcome.end == "done":
        # The reference meets its own budget by definition; what counts is whether anything proposed does.
        proposed = [c for c in outcome.candidates if c.row.origin != "reference"]
        if proposed and all(c.row.state == "infeasible" for c in proposed):
            raise InfeasibleBudget(_nearest(proposed))
    return outcome, study


def report(study: Study, outcome: Outcome, db: str, *, as_json: bool) -> None:
    """The front of a finished session on stdout, and how to see it in a browser."""
    from crossbreed.cli.fronts import print_candidates, whole_data
    from crossbreed.core.search.candidates import OWN
    from crossbreed.core.search.membership import front_probabilities
    from crossbreed.storage.locations import redacted

    name, place = study.file.name, shlex.quote(redacted(db))
    objectives = study.objectives.over([c.row for c in outcome.candidates])
    if as_json:
        print_json(
            "search",
            {
                "end": outcome.end,
                "rule": outcome.rule,
                **whole_data(name, outcome.candidates, objectives),
            },
        )
        return
    console = data_console()
    surely = front_probabilities(outcome.candidates, objectives)
    print_candidates(console, outcome.front, objectives, f"Front of {name}", surely=surely)
    members = {c.row.number for c in outcome.front}
    others = [c for c in outcome.candidates if c.point == OWN and c.row.number not in members]
    counts = {
        state: sum(c.row.state == state for c in others) for state in sorted({c.row.state for c in others})
    }
    if counts:
        words = ", ".join(f"{count} {state}" for state, count in counts.items())
        console.print(
            f"Not on the front: {words} ({program()} front {name} --all --db {place}).", markup=False
        )
    console.print(f"See it in a browser: {program()} dashboard --db {place}", markup=False)


def resume_command(start: list[str], db: str, plugins: list[Path] | None, **options: Any) -> str:
    """The command line that goes on with a search; a password in the database's URL is not repeated."""
    from crossbreed.storage.locations import redacted

    words = [program(), *start, "--db", redacted(db)]
    for path in plugins or ():
        words += ["--plugin", str(path)]
    for name, value in options.items():
        flag = "--" + {"address": "ray-address", "resources": "ray-resources"}.get(
            name, name.replace("_", "-")
        )
        if value is True:
            words.append(flag)
        elif value not in (None, False) and (name, value) != ("executor", "ray"):
            words += [flag, str(value)]
    return shlex.join(words)


def _interrupted(again: str) -> None:
    log_console().print(f"Interrupted; everything reported is stored. To go on: {again}", markup=False)
    raise typer.Exit(130)


def _nearest(candidates: Sequence[Candidate]) -> str:
    """Why nothing could be trained, by the candidate that comes closest to the budget."""
    from crossbreed.core.budget.certificate import Certificate
    from crossbreed.core.search.breeding import violation

    certified = [(c, Certificate.model_validate(c.row.certificate)) for c in candidates if c.row.certificate]
    if not certified:
        return "no candidate could be matched to the budget."
    candidate, certificate = min(certified, key=lambda pair: violation(pair[1]))
    return (
        f"no candidate meets the budget; the nearest is {candidate.row.family!r} (#{candidate.row.number}): "
        f"{certificate.reason}"
    )
