"""Evaluation: one pass over a task's fixed items, in sums that no batch size changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.task import Task, Totals
from crossbreed.core.errors import ConfigError, NotFinite
from crossbreed.core.lab.breakdown import Breakdown
from crossbreed.core.lab.environment import precision
from crossbreed.core.lab.operating_points import OWN, OperatingPoint, Stretch, realised_rates
from crossbreed.core.lab.records import Rates
from crossbreed.core.lab.train import on_device
from crossbreed.core.model.language_model import LanguageModel

TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}
"""How far a score may move with the batch size, relative to the larger of itself and 1: matrix products of another shape round
otherwise, and a token whose two likeliest answers or a router whose threshold lies within that rounding falls the other way."""


@dataclass(frozen=True)
class Evaluation:
    """Sums, the task's metrics from them, and the share of tokens per choice at every site and depth.

    ``unscored_rows`` of ``rows`` held no scored position; they are in no mean. ``breakdown``: losses by class and along the text,
    see ``Breakdown.as_dict``.
    """

    totals: Totals
    metrics: dict[str, float]
    score: float
    rates: Rates
    rows: int
    unscored_rows: int
    breakdown: dict[str, Any]


def evaluate(
    model: LanguageModel,
    task: Task,
    batch_size: int,
    *,
    point: OperatingPoint = OWN,
    seed: int = 0,
    dtype: str = "float32",
) -> Evaluation:
    """Judge a model on the task's evaluation items at one operating point.

    Accuracy and loss are over positions, so batches count by what they score and empty ones count nothing; rows keep
    their number whatever the batch size, so random routers decide alike. Logits are held for some tokens at a time.

    Raises ConfigError when nothing is scored, NotFinite for a score that is infinite or no number.
    """
    device = next(model.parameters()).device
    sites = model.sites()
    rows = unscored_rows = 0
    sums: list[torch.Tensor] = []
    recorders: list[Recorder] = []
    breakdown = Breakdown(task.length)
    model.eval()
    with torch.inference_mode(), precision(dtype, device):
        for host_batch in task.evaluation(batch_size):
            unscored_rows += int((~task.judged(host_batch).any(dim=1)).sum())
            batch = on_device(host_batch, device)
            B, T = batch.tokens_BT.shape
            recorder = Recorder()
            context = model.context(
                batch.tokens_BT,
                phase="prefill",
                seed=seed,
                rows_B=torch.arange(rows, rows + B, device=device),
                document_BT=batch.document_BT,
                labels_BT=batch.labels_BT if model.needs_labels else None,
                forced=point.forced(sites, Stretch(B, T, length=T), device=device),
                recorder=recorder,
            )
            nats_BT, right_BT = model.token_losses(batch, context)
            judged_BT = task.judged(batch)
            judged = (judged_BT, right_BT & judged_BT, nats_BT.double().masked_fill(~judged_BT, 0.0))
            sums.append(torch.stack([fact_BT.double().sum() for fact_BT in judged]))
            breakdown.add(batch.labels_BT, context.positions_BT, task.classes(batch), nats_BT, right_BT)
            recorders.append(recorder)
            rows += B
    scored, correct, loss_nats = torch.stack(sums).sum(dim=0).tolist() if sums else (0.0, 0.0, 0.0)
    if not scored:
        raise ConfigError(f"task {type(task).__name__} scores no position in its {rows} evaluation rows")
    totals = Totals(scored=int(scored), correct=int(correct), loss_nats=loss_nats)
    metrics = task.metrics(totals)
    score = metrics[task.score.name]
    if not math.isfinite(score):
        raise NotFinite(f"{task.score.name} at {point.name!r} is {score}; a score must be finite")
    rates = realised_rates(recorders)
    return Evaluation(totals, metrics, score, rates, rows, unscored_rows, breakdown.as_dict())
