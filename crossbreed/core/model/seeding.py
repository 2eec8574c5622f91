"""Torch's global generator at a seed, for as long as something draws from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The generator of the CPU, where models are built, begins at ``seed``; after the block it is as it was before.

    ``torch.manual_seed`` would also seed every kind of device there is and leave them so, load the compiler first, and take
    longer than to build a small part.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
