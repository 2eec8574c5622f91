"""Loss around a switch of reading modes, beside the curves of texts that never switch (Oryx, section 6 of its sheet)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab.analytics.measures import bin_width, binned_mean
from crossbreed.core.lab.analytics.observation import Floats, Ints
from crossbreed.core.lab.analytics.subject import Subject

Schedule = tuple[int, int]
"""(mode before the switch, mode from it on); equal for a text that never switches."""


def switches(subject: Subject, position: int | None = None) -> dict[str, Any]:
    """Mean loss by distance from a switch at ``position``, for every pair of modes; {} without a choice of modes.

    Curves are means over bins of ``width`` positions, counted from the switch so that no bin holds both modes. Raises
    ConfigError for a position outside the text.
    """
    modes = [site for site in subject.model.sites().values() if site.kind == "mode"]
    length = subject.task.length
    if position is not None and not (modes and 0 < position < length):
        raise ConfigError(
            f"the switch position is {position}; it must lie inside the text, from 1 to {length - 1}, and the model must "
            "choose between reading modes"
        )
    at = length // 2 if position is None else position
    if not modes or at == 0:
        return {}
    (site,) = modes
    schedules = [(n, n) for n in range(site.choices)] + list(permutations(range(site.choices), 2))
    losses, position_M, rows = _losses(subject, site.name, schedules, at)
    width = bin_width(length)
    bin_M = (position_M - at) // width
    lowest = int(bin_M.min())
    bins = int(bin_M.max()) - lowest + 1
    curves = {schedule: binned_mean(loss_M, bin_M - lowest, bins) for schedule, loss_M in losses.items()}
    return {
        "site": site.name,
        "choices": list(site.names),
        "rows": rows,
        "position": at,
        "width": width,
        "distances": [(lowest + n) * width for n in range(bins)],
        "scored": np.bincount(bin_M - lowest, minlength=bins).tolist(),
        "alone": [{"mode": n, "mean_nats": curves[n, n]} for n in range(site.choices)],
        "switched": [
            {"before": a, "after": b, "mean_nats": curve, "excess_nats": _difference(curve, curves[b, b])}
            for (a, b), curve in curves.items()
            if a != b
        ],
    }


def _losses(
    subject: Subject, site: str, schedules: list[Schedule], at: int
) -> tuple[dict[Schedule, Floats], Ints, int]:
    """Losses of the scored tokens under each schedule, their positions, and the rows looked at."""
    found: dict[Schedule, list[Floats]] = {schedule: [] for schedule in schedules}
    positions = []
    rows = 0
    with subject.looking():
        for first, batch in subject.batches():
            context = subject.context(first, batch, Recorder(open=False))
            after_BT = context.positions_BT >= at
            for before, after in schedules:
                mode_BT = torch.where(after_BT, after, before)
                loss_M = subject.losses(batch, context, {site: mode_BT}).flatten().numpy()
                found[before, after].append(loss_M[~np.isnan(loss_M)])
            positions.append(context.positions_BT.flatten().cpu().numpy()[~np.isnan(loss_M)])
            rows = first + len(batch.tokens_BT)
    return {s: np.concatenate(parts) for s, parts in found.items()}, np.concatenate(positions), rows


def _difference(a: list[float | None], b: list[float | None]) -> list[float | None]:
    return [None if x is None or y is None else x - y for x, y in zip(a, b, strict=True)]
