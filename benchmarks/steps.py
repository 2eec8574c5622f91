"""Training steps of the lab's own loop on any device: what the benchmarks of steps share."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from benchmarks import record
from benchmarks.attempts import deadline
from benchmarks.interleaved import Run, interleaved
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.train import Trainer
from crossbreed.core.model.language_model import LanguageModel

REPEATS = "No repeat of timed arms begins later than this."
WARM = 6
"""Steps after which a recorded pass is replayed and believed."""


def arguments(
    what: str | None,
    batch: int,
    tokens: int,
    *,
    repeats: int = 5,
    seconds: float = 60.0,
    limit: str = REPEATS,
) -> argparse.ArgumentParser:
    """Options that these benchmarks have in common."""
    parser = record.arguments(what, repeats=repeats, seconds=seconds, limit=limit)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--tokens", type=int, default=tokens)
    parser.add_argument("--backend", default="auto", help="As `search.backend`.")
    return parser


class Held:
    """A task whose training batches were made before, and come again and again; pinned for a copy to a device if they are to be."""

    def __init__(self, batches: Sequence[Batch], pin: bool = False) -> None:
        self.length = batches[0].tokens_BT.shape[1]
        self.batches = [
            Batch(b.tokens_BT.pin_memory(), b.labels_BT.pin_memory()) if pin else b for b in batches
        ]

    def train_batch(self, seed: int, step: int, size: int) -> Batch:
        return self.batches[step % len(self.batches)]


def random_batches(vocab: int, batch: int, tokens: int, count: int = 1) -> list[Batch]:
    """Random tokens, each with the next as its label."""
    g = torch.Generator().manual_seed(0)
    rows = torch.randint(vocab, (count, batch, tokens + 1), generator=g)
    return [Batch(row_BT[:, :-1].contiguous(), row_BT[:, 1:].contiguous()) for row_BT in rows]


def trainer(model: LanguageModel, task: Any, batch: int, captured: bool = True) -> Trainer:
    """The lab's loop, in bfloat16 on a CUDA device, on a run so long that its learning rate's end is never reached."""
    recipe = Recipe(
        tokens=batch * task.length * 100_000,
        batch=batch,
        dtype="bfloat16" if model.embedding.weight.is_cuda else "float32",
        lr=1e-4,
    )
    owner = Header("", recipe.model_dump(mode="json"), {}, seed=0, step=0, tokens=0, rung=0)
    return Trainer(model, task, recipe, owner, lambda record: None, captured=captured)


def advance(one: Trainer, steps: int) -> None:
    one.advance(one.tokens + steps * one.recipe.batch * one.task.length, lambda: False)


class Steps:
    """Steps of the lab's loop over the same random tokens; recorded and replayed on a CUDA device.

    ``changed`` gives what a pass is told: the model's own context of a batch goes in, the pass's comes out.
    """

    def __init__(
        self,
        genome: Architecture,
        registry: Registry,
        options: argparse.Namespace,
        changed: Callable[[Context], Context] = lambda context: context,
    ) -> None:
        self.model = LanguageModel(genome, registry, backend=options.backend).to(options.device)
        own = self.model.context
        self.model.context = lambda *a, **k: changed(own(*a, **k))  # type: ignore[method-assign]
        (one,) = random_batches(genome.vocab, options.batch, options.tokens)
        there = Batch(one.tokens_BT.to(options.device), one.labels_BT.to(options.device))
        self.trainer = trainer(self.model, Held([there]), options.batch)

    def warm(self) -> str:
        """How steps are run from now on: ``replayed``, or why they are not."""
        self(WARM if self.trainer.device.type == "cuda" else 1)
        steps = self.trainer._pass
        return "replayed" if getattr(steps, "replaying", False) else getattr(steps, "refused", "launched")

    def __call__(self, count: int) -> None:
        advance(self.trainer, count)


def in_turns(arms: Mapping[str, Run], options: argparse.Namespace, count: int) -> dict[str, list[float]]:
    """arm -> milliseconds of one of its ``count`` calls, for each repeat that --seconds have room for, and one at least."""
    device, late = torch.device(options.device), deadline(options.seconds)
    return interleaved(arms, options.repeats, device, calls=count, warm=0, late=late)


def row(ms: list[float], **about: Any) -> dict[str, Any]:
    """One row of a record: the median, and all."""
    return {**about, "ms": statistics.median(ms), "all_ms": ms}
