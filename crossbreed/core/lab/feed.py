"""Batches of a run's steps, made ahead by a thread while a device computes.

A batch is a function of its step alone, so that nothing depends on how far ahead it was made, nor on where a run was cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

from crossbreed.core.contracts.task import Batch

AHEAD = 8
"""Batches that are ready or being made while another is trained on: as many as smooth out what one takes longer than another."""
Make = Callable[[int], Batch]


@contextmanager
def feed(make: Make, steps: range, device: torch.device) -> Iterator[Iterator[Batch]]:
    """The batches of ``steps`` in order. For a CUDA device they are made ahead, in memory that it copies from by itself; a CPU has
    its own work to do. What ``make`` raises is raised where its batch is taken; a thread ends with the block."""
    if device.type != "cuda" or len(steps) < 2:
        yield map(make, steps)
        return
    with ahead(lambda step: _pinned(make(step)), steps, lambda: torch.cuda.set_device(device)) as batches:
        yield batches


@contextmanager
def ahead(make: Make, steps: range, begin: Callable[[], None]) -> Iterator[Iterator[Batch]]:
    """The batches of ``steps`` in order, made by one thread that calls ``begin`` first."""
    thread = ThreadPoolExecutor(1, "batches", initializer=begin)
    try:
        yield _taken(make, steps, thread)
    finally:
        thread.shutdown(cancel_futures=True)


def _taken(make: Make, steps: range, thread: ThreadPoolExecutor) -> Iterator[Batch]:
    made: deque[Future[Batch]] = deque()
    for step in steps:
        made.append(thread.submit(make, step))
        if len(made) > AHEAD:
            yield made.popleft().result()
    while made:
        yield made.popleft().result()


def _pinned(batch: Batch) -> Batch:
    def pin(x: Tensor | None) -> Tensor | None:
        return x if x is None or x.is_cuda or x.is_pinned() else x.pin_memory()

    return Batch(pin(batch.tokens_BT), pin(batch.labels_BT), pin(batch.document_BT))  # type: ignore[arg-type]
