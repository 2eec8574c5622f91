"""A stored run judged again on its own task: at any operating points, on longer texts, in batches of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crossbreed.core.contracts.task import Task
from crossbreed.core.errors import ConfigError
from crossbreed.core.host import Registry
from crossbreed.core.lab.evaluate import TOLERANCE, Evaluation, evaluate
from crossbreed.core.lab.operating_points import OWN, OperatingPoint, longest
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import mode_readers
from crossbreed.core.search.at_point import at_point
from crossbreed.core.search.lengths import POINT
from crossbreed.core.search.trained import TrainedRun
from crossbreed.storage import Repository
from crossbreed.storage.rows import EvaluationRow


def spread(values: Sequence[float]) -> float | None:
    """The greatest difference between values; None for fewer than two."""
    return max(values) - min(values) if len(values) > 1 else None


def within(values: Sequence[float], dtype: str) -> bool:
    """Whether values that should be one lie within the tolerance of a precision."""
    found = spread(values)
    return found is None or found <= TOLERANCE[dtype] * max(1.0, *map(abs, values))


@dataclass(frozen=True)
class Judged:
    """A run at one operating point, on texts ``times`` as long as in training.

    evaluation: with the first batch size. scores: by batch size. metrics: every metric with each batch size. stored: what a search
    stored there, None for nothing.
    """

    point: str
    times: int
    tokens: int
    evaluation: Evaluation
    scores: Mapping[int, float]
    metrics: Mapping[str, Sequence[float]]
    stored: EvaluationRow | None


@dataclass(frozen=True)
class Place:
    """Where to judge: a model and the task that asks it."""

    point: OperatingPoint
    times: int
    model: LanguageModel
    task: Task


def places(
    repository: Repository,
    run: TrainedRun,
    points: Sequence[OperatingPoint],
    lengths: Sequence[int],
    registry: Registry,
) -> list[Place]:
    """Every point at every length, all of them checked before any is judged.

    Raises ConfigError for a point or a length that the model or the task does not have.
    """
    found = []
    for point in points:
        if point.length is not None and list(lengths) != [1]:
            raise ConfigError(
                f"operating point {point.name!r} says how long texts are, and so does --length; give one of them"
            )
        model = at_point(repository, run, point, registry)
        for times in [point.length] if point.length is not None else lengths:
            found.append(Place(point, times, model, _task(run, model, times, registry)))
            point.check(mode_readers(model.architecture), found[-1].task.length)
    return found


def judge(
    repository: Repository,
    run: TrainedRun,
    asked: Sequence[Place],
    batches: Sequence[int],
    *,
    dtype: str,
    progress: Callable[[Place], None] = lambda place: None,
) -> list[Judged]:
    """Judge all of them with every batch size."""
    detail = repository.trial_detail(run.row.study_id, run.row.number)
    (own,) = [found for found in detail.runs if found.run.id == run.row.id]
    judged = []
    for place in asked:
        progress(place)
        evaluations = {
            size: evaluate(place.model, place.task, size, point=place.point, seed=run.row.seed, dtype=dtype)
            for size in batches
        }
        # A multiple of the training length is a point of its own where a search judges it.
        longer = place.point == OWN and place.times > 1
        name = f"{POINT}{place.times}" if longer else place.point.name
        known = own.points.get(name) if longer or place.times == 1 or place.point.length else None
        stored = known.evaluations[-1] if known is not None and known.evaluations else None
        judged.append(
            Judged(
                place.point.name,
                place.times,
                place.task.length,
                evaluations[batches[0]],
                {size: found.score for size, found in evaluations.items()},
                {
                    name: [found.metrics[name] for found in evaluations.values()]
                    for name in evaluations[batches[0]].metrics
                },
                stored,
            )
        )
    return judged


def _task(run: TrainedRun, model: LanguageModel, times: int, registry: Registry) -> Task:
    task = run.setting.task
    if times == 1:
        return task
    limit = longest(model.architecture, registry)
    if limit is not None and times * task.length > limit.tokens:
        raise ConfigError(
            f"texts of {times} x {task.length} tokens are too long for run {run.row.key}; its mixer {limit.mixer!r} reads "
            f"{limit.tokens} at most"
        )
    return task.at_length(times * task.length)
