"""``crossbreed front``: the front of a study as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbreed.cli.options import DEFAULT_DB, Db, Debug, Json, NewestStudy, Plugins, registry_of
from crossbreed.cli.output import data_console, print_json
from crossbreed.core.errors import ConfigError

if TYPE_CHECKING:
    from crossbreed.core.search.candidates import Candidate, Objectives
    from crossbreed.core.search.divergence import Divergence
    from crossbreed.core.search.plugin_files import OlderText
    from crossbreed.storage.repository import Repository
    from crossbreed.storage.rows import StudyRow


def front(
    study: NewestStudy = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every candidate, the front's members starred.")
    ] = False,
    db: Db = DEFAULT_DB,
    plugin: Plugins = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the front of a study: its non-dominated candidates within the budget, with intervals and cost."""
    from crossbreed.core.search.divergence import in_study
    from crossbreed.core.search.plugin_files import older_texts
    from crossbreed.storage.repository import Repository

    registry_of(plugin)
    with Repository.open(db, read_only=True) as repository:
        row = find_study(repository, study)
        found, objectives = candidates_of(repository, row, everything=everything)
        rates = in_study(repository, row.id)
        fitted = fitted_points(repository, row)
        growth = growth_of(repository, row)
        older = older_texts(repository.plugin_files(row.id), [c for c in found if everything or c.on_front])
    print_front(
        row.name, found, objectives, fitted, growth, rates, older, everything=everything, as_json=json
    )


def find_study(repository: Repository, name: str | None) -> StudyRow:
    """The study of that name, or the newest one. Raises ConfigError when the database holds none."""
    if name is not None:
        return repository.open_study(name)
    studies = repository.list_studies()
    if not studies:
        raise ConfigError(
            f"database {repository.database.shown} holds no study; `crossbreed search` makes one."
        )
    return studies[-1]


def candidates_of(
    repository: Repository, row: StudyRow, *, everything: bool = True
) -> tuple[list[Candidate], Objectives]:
    """All candidates of a study, or those that matter to its front, and its objectives with the keys of its speeds."""
    from crossbreed.core.search import candidates
    from crossbreed.core.search.shortlist import front_candidates
    from crossbreed.core.search.study_file import StudyFile

    objectives = candidates.Objectives.of(StudyFile.read(row.spec, f"study {row.name}"))
    if not everything:
        return front_candidates(repository, row.id, objectives)
    rows = repository.candidates(row.id, points=objectives.points)
    objectives = objectives.over(rows)
    return candidates.read(rows, objectives), objectives


def fitted_points(repository: Repository, row: StudyRow) -> list[dict[str, Any]]:
    """Runs of a study that are used with fitted routers too: where, their genome, and their score beside the run's own on
    the same rows."""
    from crossbreed.core.lab.operating_points import FITTED

    return [
        {
            "run": run,
            "point": point.name,
            "genome": settings["genome"],
            "score": point.evaluations[-1].score,
            "native_score": settings["native"]["score"],
        }
        for run, points in repository.points_like(row.id, FITTED).items()
        for point in points
        if (settings := point.settings) is not None
    ]


def growth_of(repository: Repository, row: StudyRow) -> list[dict[str, Any]]:
    """Every change of the front's hypervolume, oldest first."""
    from crossbreed.core.search.growth import history

    return [asdict(change) for change in history(repository, row.id)]


def print_front(
    name: str,
    found: list[Candidate],
    objectives: Objectives,
    fitted: list[dict[str, Any]],
    growth: list[dict[str, Any]],
    rates: dict[str, Divergence],
    older: list[OlderText],
    *,
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """The front, or every candidate, as a table or as JSON on stdout."""
    from crossbreed.cli.fronts import divergence_words, front_data, print_candidates
    from crossbreed.cli.notes import print_notes
    from crossbreed.core.search.membership import front_probabilities

    shown = [c for c in found if everything or c.on_front]
    surely = front_probabilities(found, objectives)
    if as_json:
        data = front_data(name, shown, objectives, surely, rates)
        plugins = [asdict(text) for text in older]
        print_json("front", {**data, "fitted": fitted, "growth": growth, "older_plugins": plugins})
        return
    console = data_console()
    title = f"Candidates of {name} (* on the front)" if everything else f"Front of {name}"
    print_candidates(console, shown, objectives, title, mark_front=everything, surely=surely)
    if not shown:
        console.print("Nothing is on the front yet: no candidate is trained and measured.")
    print_notes(console, shown, older)
    for family, rate in rates.items():
        if rate.diverged:
            console.print(f"{family}: {divergence_words(rate)}.", markup=False)
    for item in fitted:
        console.print(
            f"{item['run']} at {item['point']}: score {item['score']:.4g}, with its own routers {item['native_score']:.4g} on "
            f"the same rows; genome {item['genome'][:12]}.",
            markup=False,
        )
