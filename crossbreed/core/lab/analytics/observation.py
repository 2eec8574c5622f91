"""One pass over the rows: what every site gave every token, what each token cost, and what mixers recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.lab.analytics.subject import Subject

LOAD = "load"
"""A mixer records under this name how many slots each routed expert was given, always-on experts left out; with several
sets of experts, under ``load.PART``."""
DEPTH_WEIGHT, DEPTH_TOKENS = "depth_weight_HS", "depth_tokens"
"""A mixer that attends over depths records its weights on the S depths seen, summed over tokens, and how many those are."""
SUMMED = {LOAD, DEPTH_WEIGHT, DEPTH_TOKENS}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class SiteTokens:
    """One site at one depth. ``entropy_M`` is None unless its router reads the output head's entropy once a token."""

    choice_M: Ints
    asked_M: Bools
    entropy_M: Floats | None


@dataclass(frozen=True)
class Seen:
    """``length``: tokens of a row. ``loss_M``: nats, NaN where nothing is scored. ``position_M`` restarts with each document.

    ``totals``: site -> name -> sum over batches of what mixers recorded beside the routers (loads, weights). ``groups``: label ->
    names of the classes that it takes together.
    """

    rows: int
    length: int
    token_M: Ints
    position_M: Ints
    class_M: Ints
    classes: tuple[str, ...]
    loss_M: Floats
    sites: dict[str, SiteTokens]
    totals: dict[str, dict[str, Floats]]
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def scored_M(self) -> Bools:
        return ~np.isnan(self.loss_M)


def observe(subject: Subject) -> Seen:
    """Look at all rows once."""
    tokens: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    totals: dict[str, dict[str, Floats]] = defaultdict(dict)
    words, positions, classes, losses = [], [], [], []
    names: tuple[str, ...] = ()
    groups: dict[str, tuple[str, ...]] = {}
    rows = 0
    with subject.looking():
        for first, batch in subject.batches():
            recorder = Recorder(detail=True)
            context = subject.context(first, batch, recorder)
            losses.append(subject.losses(batch, context).flatten())
            kinds = subject.task.classes(batch)
            names, groups = kinds.names, dict(kinds.groups)
            words.append(batch.tokens_BT.flatten())
            positions.append(context.positions_BT.flatten())
            classes.append(kinds.class_BT.flatten())
            for key, fact_BT in per_token(recorder).items():
                # A router that asks twice for a token exposes no one entropy.
                if fact_BT.shape == batch.tokens_BT.shape:
                    tokens[key].append(fact_BT.flatten())
            _add(totals, recorder)
            rows = first + len(batch.tokens_BT)

    def together(parts: Iterable[Tensor]) -> Any:
        return torch.cat([part.cpu() for part in parts]).numpy()

    sites = {
        site: SiteTokens(
            together(tokens[site, "choice_BT"]),
            together(tokens[site, "asked_BT"]),
            together(tokens[site, "entropy_BT"]).astype(np.float64)
            if (site, "entropy_BT") in tokens
            else None,
        )
        for site, fact in list(tokens)
        if fact == "choice_BT"
    }
    return Seen(
        rows,
        subject.task.length,
        together(words),
        together(positions),
        together(classes),
        names,
        together(losses),
        dict(sorted(sites.items(), key=lambda item: in_order(item[0]))),
        dict(totals),
        groups,
    )


def per_token(recorder: Recorder) -> dict[tuple[str, str], Tensor]:
    """(site, fact) -> BT of one pass; a model that ran piece by piece recorded it in pieces."""
    found: dict[tuple[str, str], list[Tensor]] = defaultdict(list)
    for site, facts in recorder.records:
        for name, value in facts.items():
            if name.endswith("_BT"):
                found[site, name].append(value)
    return {key: torch.cat(pieces, dim=1) for key, pieces in found.items()}


def _add(totals: dict[str, dict[str, Floats]], recorder: Recorder) -> None:
    for site, facts in recorder.records:
        for name, value in facts.items():
            if name.partition(".")[0] in SUMMED:
                totals[site][name] = totals[site].get(name, 0.0) + value.double().cpu().numpy()


def in_order(site: str) -> tuple[tuple[int, int | str], ...]:
    """Sorts ``"2.0.1.gate"`` before ``"10.0.0.gate"``, and by depth within a block."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in site.split("."))
