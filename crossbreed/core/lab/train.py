"""The training loop of one run: AdamW, warm-up and cosine, clipping, checks without waiting for the device.

Nothing in a step depends on how the run was cut into pieces: batches, router draws and the process's generators are
functions of (seed, step), so a resumed run repeats an uninterrupted one exactly on a CPU.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.contracts.task import Batch, Task
from crossbreed.core.errors import Diverged
from crossbreed.core.lab import checkpoint
from crossbreed.core.lab.checkpoint import Header, Stored
from crossbreed.core.lab.feed import feed
from crossbreed.core.lab.passes import CapturedPass, TrainingPass
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.records import Curve, CurvePoint, Record
from crossbreed.core.lab.shard import Shard
from crossbreed.core.model.language_model import LanguageModel

FLUSH_S = 1.0
"""Curve points are sent at most this often, so that a fast loop is not spent on messages."""


class Trainer:
    """Trains one model in place, from its current ``step`` on.

    ``owner``: the header of this run's checkpoints at step 0 (architecture, recipe, task, seed). ``captured``: on a CUDA
    device, replay a recorded pass where the model allows it.
    """

    def __init__(
        self,
        model: LanguageModel,
        task: Task,
        recipe: Recipe,
        owner: Header,
        emit: Callable[[Record], None],
        *,
        captured: bool = True,
    ) -> None:
        self.model, self.task, self.recipe, self.owner, self.emit = (
            model,
            task,
            recipe,
            owner,
            emit,
        )
        self.device = next(model.parameters()).device
        self.optimiser = torch.optim.AdamW(
            model.parameter_groups(recipe.weight_decay),
            lr=recipe.peak_lr,
            betas=recipe.betas,
            fused=True,
        )
        self.captured = captured and self.device.type == "cuda"
        self.shard = Shard()
        self._pass = self._passes()
        self.step = 0
        self.total_steps = recipe.steps(recipe.tokens, task.length)
        self._pending: list[list[float]] = []
        self._unread: list[Tensor] = []
        self._points: list[CurvePoint] = []
        self._flushed_at = time.monotonic()

    @property
    def tokens(self) -> int:
        """Training tokens seen so far."""
        return self.step * self.recipe.batch * self.task.length

    def share(self, shard: Shard) -> None:
        """Train on a part of each batch from now on, beside other devices; on the whole with ``Shard()``.

        What was recorded for another part is forgotten.
        """
        self._pass.release()
        self.shard = shard
        self._pass = self._passes()

    def advance(self, tokens: int, stop: Callable[[], bool]) -> bool:
        """Train until at least ``tokens`` tokens are seen; False when ``stop`` ended it earlier.

        Raises Diverged, naming the first step whose loss or gradient norm was not finite.
        """
        target = self.recipe.steps(tokens, self.task.length)
        self.model.train()
        try:
            # fork_rng: the caller's generators are left as they were.
            with (
                torch.random.fork_rng(devices=self._generator_devices()),
                feed(self._batch, range(self.step, target), self.device) as batches,
            ):
                while self.step < target:
                    if stop():
                        self._read_unread()
                        return False
                    aux = self._one_step(batches)
                    if self.step % self.recipe.log_every == 0 or self.step == target:
                        self._log(aux)
            return True
        finally:
            # Whatever ended the loop, the points before it are sent.
            self.flush()

    def save(
        self, folder: Artefacts, name: str, rung: int, metrics: dict[str, float] | None = None
    ) -> Stored:
        """Write a checkpoint of this step. Raises Diverged rather than keep weights that are not finite."""
        self._read_unread()
        header = replace(
            self.owner,
            step=self.step,
            tokens=self.tokens,
            rung=rung,
            pending=self._pending,
            metrics=metrics or {},
        )
        return checkpoint.write(folder, name, self.model, self.optimiser, header)

    def load(self, folder: Artefacts, name: str) -> Header:
        """Go on from a checkpoint of this run. Raises ConfigError when it is another run's."""
        header = checkpoint.read(folder, name, self.model, self.optimiser, self.owner)
        self.step, self._pending = header.step, list(header.pending)
        return header

    def flush(self) -> None:
        """Send the curve points that are waiting."""
        if self._points:
            self.emit(Curve(tuple(self._points)))
        self._points = []
        self._flushed_at = time.monotonic()

    def _passes(self) -> TrainingPass | CapturedPass:
        plain = TrainingPass(self.model, self.recipe, self.owner.seed, self.shard)
        return CapturedPass(plain) if self.captured else plain

    def _batch(self, step: int) -> Batch:
        return self.shard.rows(self.task.train_batch(self.owner.seed, step, self.recipe.batch))

    def _one_step(self, batches: Iterator[Batch]) -> dict[str, Tensor]:
        step = self.step
        _seed_generators(self.owner.seed, step, self.device, self.shard.rank)
        batch = on_device(next(batches), self.device)
        lr = self.recipe.lr_at(step, self.total_steps)
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        found = self._pass(batch, step)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.shard.add_up_statistics(self.model)
        self.model.after_step()
        self.step += 1
        self._unread.append(found.numbers_3)
        return found.auxiliary

    def _read_unread(self) -> None:
        """Bring losses and norms of the last steps to the host, and check them."""
        if not self._unread:
            return
        rows = torch.stack(self._unread).tolist()
        first = self.step - len(rows)
        for step, (total, _, norm) in enumerate(rows, start=first):
            for what, value in (("loss", total), ("gradient norm", norm)):
                if not math.isfinite(value):
                    # The rows stay unread, so that a later save() refuses as well.
                    raise Diverged(f"{what} was {value} at step {step} of {self.total_steps}")
        self._pending += [[nats, norm] for _, nats, norm in rows]
        self._unread = []

    def _log(self, aux: dict[str, Tensor]) -> None:
        self._read_unread()
        count = len(self._pending)
        nats, norm = (sum(column) / count for column in zip(*self._pending, strict=True))
        self._pending = []
        self._points.append(
            CurvePoint(
                step=self.step,
                tokens=self.tokens,
                loss_nats=nats,
                lr=self.recipe.lr_at(self.step - 1, self.total_steps),
                grad_norm=norm,
                aux={name: value.item() for name, value in aux.items()},
            )
        )
        if time.monotonic() - self._flushed_at >= FLUSH_S:
            self.flush()

    def _generator_devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device, without waiting for it where the batch lies in pinned memory; the same object when it is there already."""
    if device.type == "cpu":
        return batch

    def move(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.to(device, non_blocking=True)

    return Batch(move(batch.tokens_BT), move(batch.labels_BT), move(batch.document_BT))  # type: ignore[arg-type]


def _seed_generators(seed: int, step: int, device: torch.device, rank: int) -> None:
    """Make what a plugin draws from torch's own generators (dropout) a function of (seed, step), and of the device among several
    that share a batch: their rows do not drop out alike."""
    of_rank = f"/{rank}" if rank else ""
    word = int.from_bytes(hashlib.blake2b(f"{seed}/{step}{of_rank}".encode(), digest_size=7).digest(), "big")
    # torch.manual_seed would visit every device type, at a cost that shows beside a small step.
    torch.default_generator.manual_seed(word)
    if device.type == "cuda":
        torch.cuda.manual_seed(word)
