"""How a task judges: what the best answer, a guess and no answer at all score."""

from __future__ import annotations

import math

import torch

from crossbreed.core.conformance.case import Case
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.conformance.tasks import data  # noqa: F401  (its rules stand before these)
from crossbreed.core.conformance.tasks.subject import TaskSubject, rows, score, training
from crossbreed.core.contracts.task import Task, Totals
from crossbreed.core.errors import ConfigError

SIGMAS = 6.0
"""Standard errors by which a share of finitely many items may miss."""


@rule(
    "task",
    "score",
    says="A perfect answer scores the bound, however much was scored, and nothing scored is no score.",
    measured="Metrics of 1, 7 and 1000 positions, all right and without loss; of none they must be a ConfigError or not a number.",
    faults=("T1",),
)
def score_(subject: TaskSubject, case: Case) -> None:
    task = subject.task(case.settings)
    judged = task.score
    require(judged.direction in ("max", "min"), f"the score's direction is {judged.direction!r}")
    for count in (1, 7, 1000):
        best = score(task, count, count)
        if judged.bound is not None:
            exact = math.isclose(best, judged.bound, abs_tol=1e-9)
            require(
                exact, f"{count} right answers of {count} score {best:g}, not {judged.bound:g}", score=best
            )
        worse = _worse(task, score(task, count, 0, 50.0 * count), best)
        require(worse, f"no right answer of {count} scores as well as {count}", best=best)
    try:
        nothing = task.metrics(Totals(0, 0, 0.0)).get(judged.name, math.nan)
    except ConfigError:
        return
    require(math.isnan(nothing), f"nothing scored has the score {nothing:g}", score=nothing)


@rule(
    "task",
    "solver",
    says="A solvable task ships a solver that reaches the bound on scored positions; any other declares baselines.",
    measured="The solver's answers to all evaluation items and to two training batches against the labels, exactly.",
    faults=("T3", "T4"),
    after=("batches", "score"),
)
def solver(subject: TaskSubject, case: Case) -> None:
    task = subject.task(case.settings)
    for where, batch in (("evaluation", rows(task.evaluation(64))), ("training", rows(training(task)))):
        answers = task.solve(batch.tokens_BT)
        if answers is None:
            baselines = task.baselines()
            require(len(baselines) > 0, "it ships no solver and declares no baseline")
            finite = all(math.isfinite(value) for value in baselines.values())
            require(finite, f"its baselines are {baselines}")
            return
        asked = task.judged(batch)
        count, right = int(asked.sum()), int((answers == batch.labels_BT)[asked].sum())
        reached, bound = score(task, count, right), task.score.bound
        require(bound is not None, "it ships a solver, but its score has no bound")
        require(
            reached == bound,
            f"the solver scores {reached:g} on {where}, the bound is {bound}",
            right=right,
            of=count,
        )


@rule(
    "task",
    "chance",
    says="A guess scores chance: no constant answer beats the larger of chance and the declared baselines, and chance is no more "
    "than a guess among the labels that occur.",
    measured="The shares of all labels of the evaluation items, within 6 standard errors; where the score is made of the loss, that "
    "of a uniform guess over the vocabulary within 1 %.",
    faults=("T3",),
    after=("batches", "score", "solver"),
)
def chance(subject: TaskSubject, case: Case) -> None:
    task = subject.task(case.settings)
    if score(task, 100, 0, 10.0) == score(task, 100, 100, 10.0):
        guess = score(task, 1000, 1000 // task.vocab, 1000 * math.log(task.vocab))
        true = math.isclose(guess, task.chance, rel_tol=0.01)
        require(true, f"a uniform guess scores {guess:g}, chance is said to be {task.chance:g}", guess=guess)
        return
    items = rows(task.evaluation(64))
    labels = items.labels_BT[task.judged(items)]
    count, shares = labels.numel(), torch.bincount(labels) / labels.numel()
    best = score(task, count, int(shares.max() * count))
    known = max((task.chance, *task.baselines().values()), key=lambda value: _rank(task, value))
    noise = SIGMAS * math.sqrt(known * abs(1 - known) / count) + 1e-6 if 0 < known < 1 else 1e-6
    require(
        _rank(task, best) <= _rank(task, known) + noise,
        f"always answering {int(shares.argmax())} scores {best:g}; chance and baselines say {known:g}",
        constant=best,
        stated=known,
        allowed=noise,
    )
    among = int((shares > 0).sum())
    guess = score(task, among, 1)
    require(
        _rank(task, task.chance) <= _rank(task, guess) + 1e-6,
        f"chance is said to be {task.chance:g}, but a guess among the {among} labels that occur scores {guess:g}",
        stated=task.chance,
        guess=guess,
    )


@rule(
    "task",
    "classes",
    says="Every position has one of the named classes, the names are the same for every batch, and what the score counts and groups "
    "take together are among them.",
    measured="Evaluation and training batches.",
    after=("batches",),
)
def classes(subject: TaskSubject, case: Case) -> None:
    task, names = subject.task(case.settings), set()
    for batch in (*training(task), next(iter(task.evaluation(4)))):
        found = task.classes(batch)
        names.add(found.names)
        grouped = {name for group in found.groups.values() for name in group}
        unknown = sorted({*task.score.on, *grouped} - set(found.names))
        require(not unknown, f"no class has the name {', '.join(map(repr, unknown))}")
        require(bool(task.judged(batch).any()), "the score counts no position of a batch")
        require(
            found.class_BT.shape == batch.tokens_BT.shape,
            f"classes have the shape {tuple(found.class_BT.shape)}",
        )
        low, high = (int(bound) for bound in found.class_BT.aminmax())
        inside = low >= 0 and high < len(found.names)
        require(inside, f"classes lie in {low}..{high}, and there are {len(found.names)} names")
    require(len(names) == 1, f"names of classes change from batch to batch: {sorted(names)}")


def _rank(task: Task, value: float) -> float:
    """Larger is better."""
    return value if task.score.direction == "max" else -value


def _worse(task: Task, value: float, than: float) -> bool:
    return _rank(task, value) < _rank(task, than)
