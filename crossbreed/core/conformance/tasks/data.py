"""A task's data: legal, a function of seed and settings alone, fixed where it judges, and apart from what it trains on."""

from __future__ import annotations

from typing import Any

import torch

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.generators import generators, seed_all
from crossbreed.core.conformance.rule import Broken, require, rule
from crossbreed.core.conformance.stated import register_settings_rule
from crossbreed.core.conformance.tasks.subject import ROWS, TaskSubject, fingerprint, rows, training
from crossbreed.core.contracts.task import IGNORE, Batch, Task
from crossbreed.core.errors import ConfigError

STEPS = (*range(10), 100, 1000, 1001, 10_000, 100_000, 999_999)
"""Steps of training at which rows are compared with evaluation items."""

register_settings_rule("task")


@rule(
    "task",
    "batches",
    says="Batches have the size and length that were asked for, and every token and label is in the vocabulary.",
    measured="Training batches of 1, 5 and 64 rows and the evaluation items in batches of at most so many; labels may be -100 where "
    "nothing is scored, and something is scored.",
    faults=("S10", "S11", "T7"),
    sizes=Sizes({"size": (1, 5, 64)}),
)
def batches(subject: TaskSubject, case: Case) -> None:
    size, task = case["size"], subject.task(case.settings)
    for batch in training(task, size=size):
        require(len(batch.tokens_BT) == size, f"a training batch of {size} has {len(batch.tokens_BT)} rows")
        _legal(task, batch, "training")
    items = 0
    for batch in task.evaluation(size):
        require(
            0 < len(batch.tokens_BT) <= size, f"an evaluation batch of {size} has {len(batch.tokens_BT)} rows"
        )
        _legal(task, batch, "evaluation")
        items += len(batch.tokens_BT)
    require(items > 0, "there are no evaluation items")


def _legal(task: Task, batch: Batch, where: str) -> None:
    wanted = (len(batch.tokens_BT), task.length)
    for name, tensor in (
        ("tokens", batch.tokens_BT),
        ("labels", batch.labels_BT),
        ("documents", batch.document_BT),
    ):
        if tensor is not None:
            fits = tuple(tensor.shape) == wanted and tensor.dtype == torch.int64
            require(
                fits, f"{name} of {where} are {tensor.dtype} of {tuple(tensor.shape)}, not int64 of {wanted}"
            )
    low, high = (int(bound) for bound in batch.tokens_BT.aminmax())
    inside = low >= 0 and high < task.vocab
    require(
        inside, f"tokens of {where} lie in {low}..{high}, the vocabulary is 0..{task.vocab - 1}", highest=high
    )
    asked = batch.labels_BT[batch.labels_BT != IGNORE]
    require(asked.numel() > 0, f"nothing is scored in a batch of {where}")
    low, high = (int(bound) for bound in asked.aminmax())
    inside = low >= 0 and high < task.vocab
    require(
        inside, f"labels of {where} lie in {low}..{high}, the vocabulary is 0..{task.vocab - 1}", highest=high
    )


@rule(
    "task",
    "seeded",
    says="A training batch is a function of seed and step: the same on every worker, another one for others; nothing is taken from a "
    "global generator, nor is one seeded.",
    measured="Twice by one task and once by another after other seeds of all global generators, whose states must be untouched; and of "
    "other seeds and steps. Rows of a batch are not all one.",
    faults=("R7", "T2"),
    after=("batches",),
)
def seeded(subject: TaskSubject, case: Case) -> None:
    task, found = subject.task(case.settings), []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            seed_all(seed)
            before = generators()
            batch = task.train_batch(3, 4, ROWS)
            untouched = generators() == before
            found.append(fingerprint([batch]))
    require(untouched, "a training batch takes numbers from a global generator, or seeds one")
    require(len(_set([batch])) > 1, f"all {ROWS} rows of a training batch are the same", rows=ROWS)
    found.append(fingerprint([subject.task(case.settings).train_batch(3, 4, ROWS)]))
    require(len(set(found)) == 1, "the same seed and step give different batches")
    others = [fingerprint([task.train_batch(seed, step, ROWS)]) for seed, step in ((4, 4), (3, 5), (5, 3))]
    distinct = {found[0], *others}
    require(len(distinct) == 4, "other seeds or steps give the same batch", different=len(distinct), of=4)


@rule(
    "task",
    "evaluation-fixed",
    says="Evaluation items are the same each time, in batches of any size, on every worker, and their hash is theirs.",
    measured="Twice by one task with training in between, in batches of 1, 8 and 32, and by another task after other seeds of all "
    "global generators.",
    faults=("T5",),
    after=("batches",),
)
def evaluation_fixed(subject: TaskSubject, case: Case) -> None:
    task = subject.task(case.settings)
    hashes, found = [task.evaluation_hash()], [fingerprint([rows(task.evaluation(8))])]
    training(task, seeds=(7,))
    for size in (1, 8, 32):
        found.append(fingerprint([rows(task.evaluation(size))]))
    with torch.random.fork_rng(devices=[]):
        seed_all(5)
        other = subject.task(case.settings)
        found.append(fingerprint([rows(other.evaluation(8))]))
    hashes += [task.evaluation_hash(), other.evaluation_hash()]
    require(len(set(found)) == 1, "evaluation items differ from one time to the next")
    require(len(set(hashes)) == 1, "the hash of the evaluation items differs from one time to the next")


@rule(
    "task",
    "every-setting",
    says="Every setting does something: another value gives other data, and other evaluation items another hash.",
    measured="For each setting other values, near its own or from its declared range, until one is legal and changes vocabulary, "
    "length, training or evaluation; a file is replaced by one of the same lines in another order.",
    faults=("I5",),
    after=("seeded", "evaluation-fixed"),
)
def every_setting(subject: TaskSubject, case: Case) -> None:
    settings = subject.config(case.settings).model_dump()
    here = _data(subject, settings)
    for name, value in settings.items():
        tried = 0
        for other in subject.alternatives(name, value):
            try:
                there = _data(subject, {**settings, name: other})
            except ConfigError:
                continue
            tried += 1
            told = (there["hash"] != here["hash"]) == (there["evaluation"] != here["evaluation"])
            require(
                told,
                f"{name}={other!r} gives other evaluation items, but the same hash, or the other way round",
            )
            if there != here:
                break
        else:
            if not tried:
                raise Broken(
                    f"no other legal value of {name}={value!r} was found; state its range in the descriptor"
                )
            raise Broken(
                f"the setting {name!r} changes nothing: {tried} other values give the same data", tried=tried
            )


def _data(subject: TaskSubject, settings: dict[str, Any]) -> dict[str, Any]:
    task = subject.task(settings)
    return {
        "vocab": task.vocab,
        "length": task.length,
        "training": fingerprint(training(task)),
        "evaluation": fingerprint(task.evaluation(64)),
        "hash": task.evaluation_hash(),
    }


@rule(
    "task",
    "overlap",
    says="No row that is trained on is an evaluation item, whatever the seed.",
    measured="Rows of 3 seeds and 16 steps, up to the millionth, 64 rows a step, against all evaluation items.",
    faults=("T2",),
    after=("seeded", "evaluation-fixed"),
)
def overlap(subject: TaskSubject, case: Case) -> None:
    task = subject.task(case.settings)
    items = _set(task.evaluation(64))
    trained = _set(training(task, seeds=(0, 1, 12345), steps=STEPS, size=64))
    shared = len(items & trained)
    require(
        shared == 0,
        f"{shared} of {len(items)} evaluation items are among {len(trained)} rows of training",
        shared=shared,
        items=len(items),
        trained=len(trained),
    )


def _set(batches: Any) -> set[bytes]:
    return {row.numpy().tobytes() for batch in batches for row in batch.tokens_BT}
