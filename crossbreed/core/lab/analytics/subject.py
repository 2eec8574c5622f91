"""What is looked at: a model under one operating point, on the first rows of a task's evaluation items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context, Recorder
from crossbreed.core.contracts.task import IGNORE, Batch, Task
from crossbreed.core.lab.environment import precision
from crossbreed.core.lab.operating_points import OWN, OperatingPoint, Stretch
from crossbreed.core.lab.train import on_device
from crossbreed.core.model.language_model import LanguageModel

FEW_ROWS, FEW_TOKENS = 32, 4096
"""Bounds of what is looked at after every run: so many rows, and about so many tokens, but one row at least."""


def few_rows(task: Task) -> int:
    """Evaluation rows whose analysis takes about as long as timing the model at one operating point, or less."""
    return max(1, min(FEW_ROWS, FEW_TOKENS // task.length))


@dataclass(frozen=True)
class Subject:
    """A model to look at. ``rows``: how many evaluation rows; ``batch``: how many at once, which changes no result.

    Rows, their numbers and ``seed`` are those of evaluation, so that every router decides here as it does there.
    """

    model: LanguageModel
    task: Task
    rows: int
    point: OperatingPoint = OWN
    batch: int = 16
    seed: int = 0
    dtype: str = "float32"

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Evaluation mode without gradients, in the recipe's precision."""
        self.model.eval()
        with torch.inference_mode(), precision(self.dtype, self.device):
            yield

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """(number of the first row, batch) until ``rows`` rows are seen or the task has no more."""
        first = 0
        for batch in self.task.evaluation(min(self.batch, self.rows)):
            kept = _first_rows(batch, self.rows - first)
            yield first, on_device(kept, self.device)
            first += len(kept.tokens_BT)
            if first >= self.rows:
                return

    def context(self, first: int, batch: Batch, recorder: Recorder) -> Context:
        """The context of whole rows, as evaluation makes it, with the operating point's decisions forced."""
        B, T = batch.tokens_BT.shape
        return self.model.context(
            batch.tokens_BT,
            phase="prefill",
            seed=self.seed,
            rows_B=torch.arange(first, first + B, device=self.device),
            document_BT=batch.document_BT,
            labels_BT=batch.labels_BT if self.model.needs_labels else None,
            forced=self.point.forced(self.model.sites(), Stretch(B, T, length=T), device=self.device),
            recorder=recorder,
        )

    def losses(self, batch: Batch, context: Context, forced: Mapping[str, Tensor] | None = None) -> Tensor:
        """loss_BT in nats of one pass, float64 on the host, NaN where nothing is scored; ``forced`` adds decisions."""
        forced_too = context.at(forced={**context.forced, **(forced or {})})
        nats_BT, _ = self.model.token_losses(batch, forced_too)
        return nats_BT.double().masked_fill(batch.labels_BT == IGNORE, torch.nan).cpu()


def _first_rows(batch: Batch, rows: int) -> Batch:
    document_BT = None if batch.document_BT is None else batch.document_BT[:rows]
    return Batch(batch.tokens_BT[:rows], batch.labels_BT[:rows], document_BT)
