"""A task under check: its batches, what tells two data sets apart, and other values for each of its settings."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import torch

from crossbreed.core.conformance.subject import Subject
from crossbreed.core.contracts.space import Choices, Integers
from crossbreed.core.contracts.task import Batch, Task, Totals

ROWS = 8
"""Rows of a training batch here."""


class TaskSubject(Subject):
    """A registered task. Where its defaults alone are not enough, the descriptor's example completes them."""

    kind = "task"

    def config(self, settings: Mapping[str, Any]) -> Any:
        return super().config({**self.descriptor.example, **settings})

    def task(self, settings: Mapping[str, Any]) -> Task:
        """A task of its own; raises ConfigError where its settings and its data do not fit."""
        made: Task = self.registry.factory("task", self.name)(self.config(settings))
        return made

    @cached_property
    def scratch(self) -> tempfile.TemporaryDirectory[str]:
        """For files with other contents; removed with the subject."""
        return tempfile.TemporaryDirectory(prefix="crossbreed-check-")

    def alternatives(self, name: str, value: Any) -> Iterator[Any]:
        """Other values of a setting that may be legal: those of its range, or near ``value``."""
        legal = self.descriptor.ranges.get(name)
        annotation = self.descriptor.config.model_fields[name].annotation
        found: Iterable[Any]
        if isinstance(legal, Choices):
            found = legal.values
        elif isinstance(legal, Integers):
            found = (legal.low, legal.high, legal.low + legal.step)
        elif legal is not None:
            found = (legal.low, legal.high, (legal.low + legal.high) / 2)
        elif isinstance(value, bool):
            found = (not value,)
        elif isinstance(value, int):
            found = (value + 1, value - 1, 2 * value, value // 2, 1, 2)
        elif isinstance(value, float):
            found = (value / 2, value * 1.5, 1 - value, value + 1)
        elif isinstance(value, str) and Path(value).is_file():
            found = (self._other_file(Path(value)),)
        else:
            found = (*_literals(annotation), 1, 2, 3, 0.5, 0.25, True, False)
        yield from (other for other in found if other != value)

    def _other_file(self, path: Path) -> str:
        """A file of the same lines in another order."""
        other = Path(self.scratch.name) / path.name
        other.write_text("\n".join(reversed(path.read_text().splitlines())))
        return str(other)


def _literals(annotation: Any) -> tuple[Any, ...]:
    """The values of every Literal in an annotation."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(value for argument in get_args(annotation) for value in _literals(argument))


def training(
    task: Task, seeds: Iterable[int] = (0,), steps: Sequence[int] = (0, 1), size: int = ROWS
) -> list[Batch]:
    return [task.train_batch(seed, step, size) for seed in seeds for step in steps]


def fingerprint(batches: Iterable[Batch]) -> str:
    """SHA-256 (hex) over tokens, labels and documents."""
    total = hashlib.sha256()
    for batch in batches:
        for tensor in (batch.tokens_BT, batch.labels_BT, batch.document_BT):
            if tensor is not None:
                total.update(str(tuple(tensor.shape)).encode())
                total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def rows(batches: Iterable[Batch]) -> Batch:
    """All rows of batches of one length as one batch."""
    found = list(batches)
    return Batch(torch.cat([b.tokens_BT for b in found]), torch.cat([b.labels_BT for b in found]))


def score(task: Task, count: int, correct: float, loss_nats: float = 0.0) -> float:
    """The task's score of so many scored positions."""
    found = task.metrics(Totals(count, correct, loss_nats))  # type: ignore[arg-type]
    return float(found[task.score.name])
