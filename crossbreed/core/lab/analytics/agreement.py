"""Whether a model decides one token at a time as it does in a full forward pass, both deciding freely."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.lab.analytics.observation import in_order, per_token
from crossbreed.core.lab.analytics.subject import Subject
from crossbreed.core.model.state import ModelState

ROWS, TOKENS = 4, 256
"""Bounds: rows decoded together, and tokens of each from its start."""


def agreement(subject: Subject) -> dict[str, Any]:
    """Decisions that differ between both ways, per site and in all, and the largest difference of a logit.

    A token counts at a site where either way was asked about it; it agrees where both were and chose the same.
    """
    subject = replace(subject, rows=min(ROWS, subject.rows), batch=ROWS)
    with subject.looking():
        first, batch = next(subject.batches())
        full, single = Recorder(detail=True), Recorder(detail=True)
        tokens_BT = batch.tokens_BT[:, :TOKENS]
        B, T = tokens_BT.shape
        context = subject.context(first, batch, full).slice(0, T)
        h_BTD, _ = subject.model(tokens_BT, context)
        # Under autocast the KV cache is as narrow as a decoding user's would be.
        kind = subject.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        state: ModelState | None = subject.model.init_state(B, slots=T, dtype=dtype)
        apart, largest = [], []
        for t in range(T):
            at = context.slice(t, t + 1).at(phase="decode", recorder=single)
            step_B1D, state = subject.model(tokens_BT[:, t : t + 1], at, state)
            whole_B1V = subject.model.logits(h_BTD[:, t : t + 1])
            apart.append((subject.model.logits(step_B1D) - whole_B1V).abs().max())
            largest.append(whole_B1V.abs().max())
    sites = _compare(per_token(full), per_token(single))
    decided = sum(site["decisions"] for site in sites)
    flipped = sum(site["flips"] for site in sites)
    return {
        "rows": B,
        "tokens": T,
        "decisions": decided,
        "flips": flipped,
        "flip_rate": flipped / decided if decided else None,
        "max_logit_difference": float(torch.stack(apart).max()),
        "max_logit": float(torch.stack(largest).max()),
        "sites": sites,
    }


def _compare(
    full: dict[tuple[str, str], Tensor], single: dict[tuple[str, str], Tensor]
) -> list[dict[str, Any]]:
    found = []
    for site in sorted((site for site, fact in full if fact == "choice_BT"), key=in_order):
        asked_BT, again_BT = full[site, "asked_BT"], single[site, "asked_BT"]
        either_BT = asked_BT | again_BT
        same_BT = (full[site, "choice_BT"] == single[site, "choice_BT"]) & asked_BT & again_BT
        decisions = int(either_BT.sum())
        flips = decisions - int(same_BT.sum())
        found.append(
            {
                "site": site,
                "decisions": decisions,
                "flips": flips,
                "agreement": 1 - flips / decisions if decisions else None,
            }
        )
    return found
