"""``crossbreed compare``: train given genomes under one budget, without searching."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from crossbreed.cli.genomes import KINDS, Genome
from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, Plugins, registry_of
from crossbreed.cli.output import data_console, print_json
from crossbreed.cli.search import Device, Executor, RayAddress, RayResources, Workers, drive, resume_command
from crossbreed.core.errors import ConfigError, InfeasibleBudget
from crossbreed.core.genome import Architecture, digest
from crossbreed.core.model.legality import check_training

if TYPE_CHECKING:
    from crossbreed.core.search.candidates import Candidate, Objectives
    from crossbreed.core.search.study_setting import StudySetting


def compare(
    genomes: Annotated[list[str], typer.Argument(metavar="GENOME...", help=f"Each one {KINDS}.")],
    budget: Annotated[
        Path, typer.Option("--budget", metavar="STUDY", help="A study file: its task, budget and recipe.")
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each genome; intervals need 3.")] = 3,
    move: Annotated[
        bool, typer.Option("--match", help="Move each genome's free dimensions into the budget first.")
    ] = False,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    executor: Executor = "ray",
    ray_address: RayAddress = None,
    ray_resources: RayResources = None,
    workers: Workers = None,
    device: Device = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train named genomes under one study's task, budget and recipe, and compare them. Nothing is searched.

    Results are kept as the study NAME-compare; run again, it continues. A genome outside the budget is refused before
    anything is trained.
    """
    from crossbreed.core.search.study_file import StudyFile
    from crossbreed.core.search.study_setting import resolve

    registry = registry_of(plugin)
    found = {text: Genome.find(text, db) for text in genomes}
    file = StudyFile.load(budget)
    search = file.search.model_copy(update={"trials": 0, "seeds": seeds})
    file = file.model_copy(update={"name": f"{file.name}-compare", "search": search})
    setting = resolve(file, registry)
    named = {text: genome.build(registry, setting.task.vocab) for text, genome in found.items()}
    for architecture in named.values():
        check_training(architecture, registry)
    named = {text: _within(text, architecture, setting, move) for text, architecture in named.items()}
    place = {
        "executor": executor,
        "address": ray_address,
        "resources": ray_resources,
        "workers": workers,
        "device": device,
    }
    start = [
        "compare",
        *genomes,
        "--budget",
        str(budget),
        "--seeds",
        str(seeds),
        *(["--match"] if move else []),
    ]
    again = resume_command(start, db, plugin, **place)
    outcome, study = drive(file, registry, db, again, named=list(named.values()), as_json=json, **place)
    hashes = {digest(architecture): text for text, architecture in named.items()}
    shown = [c for c in outcome.candidates if c.row.hash in hashes or c.row.origin == "reference"]
    objectives = study.objectives.over([c.row for c in shown])
    _report(file.name, shown, objectives, hashes, as_json=json)


def _within(text: str, architecture: Architecture, setting: StudySetting, move: bool) -> Architecture:
    """The genome, or its match. Raises ConfigError for another vocabulary, InfeasibleBudget outside the budget."""
    from crossbreed.core.budget.matcher import certify, match

    if architecture.vocab != setting.task.vocab:
        raise ConfigError(
            f"genome {text!r} has vocab {architecture.vocab}, but the study's task has {setting.task.vocab} tokens."
        )
    if move:
        found = match(architecture, setting.budget, setting.registry, setting.cost_model)
        architecture, certificate = found.architecture, found.certificate
    else:
        certificate = certify(architecture, setting.budget, setting.cost_model)
    if not certificate.feasible:
        hint = "" if move else " --match moves its free dimensions first."
        raise InfeasibleBudget(f"genome {text!r} is outside the budget: {certificate.reason}{hint}")
    return architecture


def _report(
    name: str, shown: list[Candidate], objectives: Objectives, hashes: dict[str, str], *, as_json: bool
) -> None:
    from crossbreed.cli.comparisons import comparison_table, comparisons_data
    from crossbreed.cli.fronts import by_score, print_candidates, whole_data
    from crossbreed.core.search import pairs

    genomes = {hashes[c.row.hash]: c.row.number for c in shown if c.row.hash in hashes}
    compared = pairs.compare(by_score(shown, objectives), objectives)
    if as_json:
        data = {
            **whole_data(name, shown, objectives),
            "genomes": genomes,
            "differences": comparisons_data(compared),
        }
        print_json("compare", data)
        return
    console = data_console()
    print_candidates(console, shown, objectives, f"Comparison {name} (* on the front)", mark_front=True)
    for text, number in genomes.items():
        console.print(f"#{number} is {escape(text)}")
    tested = [c for c in compared if c.corrected is not None]
    if tested:
        console.print(comparison_table(tested, "On shared seeds"))
    for item in tested:
        if item.better is not None:
            console.print(f"{item.objective}: {item.sentence}", markup=False)
    if not tested:
        console.print("No pair shares 3 seeds: nothing can be said yet. Run again with --seeds 3 or more.")
    elif not any(item.better is not None for item in tested):
        console.print("No pair is told apart: these seeds show no difference.")
