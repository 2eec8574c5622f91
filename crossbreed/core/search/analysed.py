"""Router analytics of stored runs: what was found, and looking again where nobody has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crossbreed.core.errors import ConfigError, StorageError
from crossbreed.core.host import Registry
from crossbreed.core.lab.analytics import VERSION, Subject, analyse, few_rows
from crossbreed.core.lab.operating_points import OperatingPoint
from crossbreed.core.model.legality import mode_readers
from crossbreed.core.search.at_point import at_point
from crossbreed.core.search.trained import load
from crossbreed.storage import Repository

Rates = dict[str, list[float]]


@dataclass(frozen=True)
class RunAnalytics:
    """Findings about a run at an operating point: ``kinds`` over ``rows`` evaluation rows, after ``tokens`` of training.

    ``realised``: the stored shares per choice at every site over all evaluation rows; {} where the point was not judged.
    """

    run: str
    point: str
    tokens: int
    rows: int
    kinds: dict[str, dict[str, Any]]
    realised: Rates = field(default_factory=dict)


def stored(repository: Repository, key: str, point: OperatingPoint) -> RunAnalytics | None:
    """What is stored about the run study/number/seed as it is now trained; None where that is nothing or out of date.

    Raises ConfigError for a key of another form, UnknownName for a run that does not exist.
    """
    run = repository.run_by_key(key)
    found = repository.analytics(run.id, point.name)
    rungs = repository.rungs(run.id)
    trained = rungs[-1].tokens if rungs else 0
    if not found or any((row.version, row.tokens) != (VERSION, trained) for row in found.values()):
        return None
    kinds = {kind: row.payload for kind, row in found.items()}
    rows = next(iter(found.values())).rows
    return RunAnalytics(key, point.name, trained, rows, kinds, _realised(repository, key, point))


def look(
    repository: Repository,
    key: str,
    point: OperatingPoint,
    registry: Registry,
    *,
    device: str = "cpu",
    rows: int | None = None,
    switch_at: int | None = None,
) -> RunAnalytics:
    """Load a run's last checkpoint and look at ``rows`` evaluation rows (a few when None); stores nothing.

    Raises ConfigError when the run left no checkpoint or its file is gone, when the point does not fit the model, and when
    nothing in the model is routed.
    """
    run = load(repository, key, registry, device)
    model, task = at_point(repository, run, point, registry), point.task(run.setting.task)
    point.check(mode_readers(model.architecture), task.length)
    subject = Subject(
        model,
        task,
        few_rows(task) if rows is None else rows,
        point=point,
        batch=run.recipe.eval_batch,
        seed=run.row.seed,
        dtype=run.recipe.dtype,
    )
    found = analyse(subject, switch_at=switch_at)
    if not found.kinds:
        raise ConfigError(
            f"run {key} has no routers, no experts and no attention over depths; there is nothing to look at."
        )
    realised = _realised(repository, key, point)
    return RunAnalytics(key, point.name, run.header.tokens, found.rows, found.kinds, realised)


def keep(repository: Repository, found: RunAnalytics) -> None:
    """Store findings in place of earlier ones. Raises StorageError when a worker has taken up the run meanwhile."""
    run = repository.run_by_key(found.run)
    about = {"version": VERSION, "tokens": found.tokens, "rows": found.rows}
    if not repository.record_analytics(run.id, run.lease, found.point, found.kinds, **about):
        raise StorageError(f"run {found.run} was taken up by a worker; nothing was stored.")


def _realised(repository: Repository, key: str, point: OperatingPoint) -> Rates:
    run = repository.run_by_key(key)
    for detail in repository.trial_detail(run.study_id, run.number).runs:
        judged = detail.points.get(point.name)
        if detail.run.id == run.id and judged is not None and judged.evaluations:
            return dict(judged.rates or {})
    return {}
