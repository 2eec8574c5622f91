"""Ladders: one family at several sizes, trained alike, with the scaling law of the smaller ones and what it says of the largest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search import scaling
from crossbreed.core.search.candidates import Objectives, candidates_of
from crossbreed.core.search.scaling import Fit, Law
from crossbreed.core.search.study_file import TASK_DATA, StudyFile
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow, SeedRow

Range = tuple[float, float]
MATCHED = 0.02
"""How far training tokens, or tokens for each unit of size, may differ among steps that are matched in them."""
NUMBERS = ("floor", "amount", "exponent")


@dataclass(frozen=True)
class Run:
    """A run that counts: its key, the tokens it was trained on and its loss."""

    key: str
    tokens: int
    loss: float


@dataclass(frozen=True)
class Step:
    """A size with its runs; ``numbers``: of the candidates as study/number. ``lost``: runs of that size that left no loss."""

    size: float
    numbers: tuple[str, ...]
    runs: tuple[Run, ...]
    lost: int = 0

    @property
    def mean(self) -> float:
        return sum(run.loss for run in self.runs) / len(self.runs)

    @property
    def tokens(self) -> float:
        return sum(run.tokens for run in self.runs) / len(self.runs)


@dataclass(frozen=True)
class Prediction:
    """What a law says of a size, with 95% intervals: of the law there, and of one new run.

    measured: the mean of the runs of that size, None where there are none. inside: how many of them lie in the run's interval.
    """

    size: float
    loss: float
    law: Range
    run: Range
    measured: float | None = None
    runs: int = 0
    inside: int = 0


@dataclass(frozen=True)
class Ladder:
    """The steps of a family, the largest ``held`` of which the law has not seen.

    matched: ``tokens``, or ``tokens per size``. intervals: number of the law -> its 95% interval over resamples.
    """

    family: str
    steps: tuple[Step, ...]
    held: int
    matched: str
    fit: Fit
    intervals: Mapping[str, Range]
    predictions: tuple[Prediction, ...]

    @property
    def law(self) -> Law:
        return self.fit.law


@dataclass(frozen=True)
class TooShort:
    """A family without enough sizes for a law."""

    family: str
    sizes: int


@dataclass(frozen=True)
class Question:
    """What is asked of stored runs.

    size:   the quantity of the nominal ledger that a law is of. metric: what falls with it, of the task's metrics.
    held:   so many of the largest sizes are left out of the fit and predicted. sizes: others to predict.
    """

    size: str = "non_embedding_parameters"
    metric: str = "loss_nats"
    point: str = "own"
    held: int = 1
    sizes: tuple[float, ...] = ()
    resamples: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in QUANTITIES:
            raise UnknownName("size", self.size, QUANTITIES)


def steps(repository: Repository, studies: Sequence[str], question: Question) -> dict[str, list[Step]]:
    """Family -> its steps by size, from the smallest, over all studies.

    Raises ConfigError for studies of different tasks, UnknownName for a metric that nothing was judged by.
    """
    _check_tasks(repository, studies)
    found: dict[str, dict[float, list[tuple[str, list[Run], int]]]] = {}
    metrics: dict[str, None] = {}
    for name in studies:
        study = repository.open_study(name)
        objectives = Objectives.of(StudyFile.read(study.spec, f"study {name!r}"))
        trained = {run: rungs[-1].tokens for run, rungs in repository.study_rungs(study.id).items() if rungs}
        for row in repository.candidates(study.id, points=None):
            if row.ledger is None:
                continue
            counted = candidates_of(row, objectives)[0].counted
            judged = [seed for seed in counted if _judged(seed, question.point)]
            metrics |= dict.fromkeys(
                m for seed in judged for m in seed.points[question.point].evaluations[-1].metrics
            )
            runs = list(_runs(f"{name}/{row.number}", judged, question, trained))
            size = float(row.ledger[question.size])
            place = found.setdefault(row.family, {}).setdefault(size, [])
            place.append((f"{name}/{row.number}", runs, _lost(row)))
    if metrics and question.metric not in metrics:
        raise UnknownName("metric", question.metric, metrics)
    return {
        family: [step for size in sorted(by_size) if (step := _step(size, by_size[size])) is not None]
        for family, by_size in sorted(found.items())
    }


def climb(family: str, found: Sequence[Step], question: Question) -> Ladder | TooShort:
    """The law of a family's smaller steps, and what it says of the others.

    Raises ConfigError for steps that were not trained alike, or a loss that is not positive.
    """
    if len(found) < scaling.LEAST_SIZES + question.held:
        return TooShort(family, len(found))
    matched = _matched(family, found)
    fitted = found[: len(found) - question.held]
    sizes = [step.size for step in fitted for _ in step.runs]
    losses = [run.loss for step in fitted for run in step.runs]
    law = scaling.fit(sizes, losses)
    laws = scaling.resample(law, sizes, losses, count=question.resamples, seed=question.seed)
    intervals = {name: scaling.percentiles([getattr(each, name) for each in laws]) for name in NUMBERS}
    held = {step.size: step for step in found[len(fitted) :]}
    predictions = [
        _predict(law, laws, size, held.get(size), question.seed) for size in sorted({*held, *question.sizes})
    ]
    return Ladder(family, tuple(found), question.held, matched, law, intervals, tuple(predictions))


def _predict(fit: Fit, laws: Sequence[Law], size: float, step: Step | None, seed: int) -> Prediction:
    run = scaling.percentiles(scaling.runs_at(fit, laws, size, seed=seed))
    losses = [] if step is None else [each.loss for each in step.runs]
    return Prediction(
        size,
        fit.law.at(size),
        scaling.percentiles([law.at(size) for law in laws]),
        run,
        None if step is None else step.mean,
        len(losses),
        sum(run[0] <= loss <= run[1] for loss in losses),
    )


def _runs(
    candidate: str, judged: Sequence[SeedRow], question: Question, trained: Mapping[int, int]
) -> Iterator[Run]:
    for seed in judged:
        value = seed.points[question.point].evaluations[-1].metrics.get(question.metric)
        if value is not None and seed.run_id in trained:
            yield Run(f"{candidate}/{seed.seed}", trained[seed.run_id], float(value))


def _judged(seed: SeedRow, point: str) -> bool:
    return point in seed.points and bool(seed.points[point].evaluations)


def _lost(row: CandidateRow) -> int:
    return len(row.in_state("diverged", "failed", "out_of_memory", "lost"))


def _step(size: float, candidates: Sequence[tuple[str, list[Run], int]]) -> Step | None:
    runs = tuple(run for _, found, _ in candidates for run in found)
    numbers = tuple(number for number, found, _ in candidates if found)
    return Step(size, numbers, runs, sum(lost for *_, lost in candidates)) if runs else None


def _matched(family: str, found: Sequence[Step]) -> str:
    """Whether all steps saw as many tokens, or as many for each unit of size."""
    runs = [(step.size, run) for step in found for run in step.runs]
    for what, amounts in (
        ("tokens", [float(run.tokens) for _, run in runs]),
        ("tokens per size", [run.tokens / size for size, run in runs]),
    ):
        if max(amounts) <= (1 + MATCHED) * min(amounts):
            return what
    least, most = (pick(runs, key=lambda each: each[1].tokens)[1] for pick in (min, max))
    raise ConfigError(
        f"family {family!r} was not trained alike: run {least.key} saw {least.tokens} tokens, run {most.key} {most.tokens}; the runs "
        f"of a ladder must have the same tokens, or the same for each unit of size, within {MATCHED:.0%}"
    )


def _check_tasks(repository: Repository, studies: Sequence[str]) -> None:
    """Losses on different items are of no one law."""
    seen: dict[str, str] = {}
    for name in studies:
        stored = repository.first_event(repository.open_study(name).id, TASK_DATA)
        if stored is not None:
            seen.setdefault(str(stored.payload["evaluation"]), name)
    if len(seen) > 1:
        (first, a), (second, b), *_ = seen.items()
        raise ConfigError(
            f"studies {a!r} and {b!r} judge by different evaluation items (SHA-256 {first[:12]} and {second[:12]}); the runs of a ladder "
            "must have one task"
        )
