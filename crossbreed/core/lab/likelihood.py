"""How likely a trained model finds a continuation of a context, many at a time, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from crossbreed.core.errors import ConfigError, NotFinite
from crossbreed.core.lab.operating_points import OWN, OperatingPoint
from crossbreed.core.lab.reading import Reading, reading, wide
from crossbreed.core.model.language_model import LanguageModel

PIECE_ELEMENTS = 1 << 22
"""Logits held at a time: 16 MiB in fp32."""


class Request(NamedTuple):
    """Tokens that are given, at least one, and tokens to be judged."""

    context: Sequence[int]
    continuation: Sequence[int]


class Likelihood(NamedTuple):
    """Log-probability of a continuation in nats, and whether the likeliest token was right everywhere."""

    nats: float
    greedy: bool


def log_likelihoods(
    model: LanguageModel,
    requests: Sequence[Request],
    *,
    batch: int,
    point: OperatingPoint = OWN,
    seed: int = 0,
    dtype: str = "float32",
    progress: Callable[[int], None] = lambda done: None,
) -> list[Likelihood]:
    """Judge every request: its context is read in one piece, then the continuation through the state that this left.

    Requests of like length are read together; every text has number 0, so that random routers decide alike in any batch. A
    schedule takes a text to be context and continuation. Raises ConfigError for an empty context.
    """
    for request in requests:
        if not request.context:
            raise ConfigError(
                "a context is empty; a model needs at least one token before it can say what follows"
            )
    found: dict[int, Likelihood] = {}
    with reading(model, dtype):
        for places in batches([len(r.context) + len(r.continuation) for r in requests], batch):
            group = [requests[place] for place in places]
            judged = _judge(model, group, point, seed, dtype)
            found |= dict(zip(places, judged, strict=True))
            progress(len(found))
    return [found[place] for place in range(len(requests))]


def batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Places of texts in groups of at most ``size``, the longest first."""
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _judge(
    model: LanguageModel, group: Sequence[Request], point: OperatingPoint, seed: int, dtype: str
) -> list[Likelihood]:
    lengths = [len(r.context) + len(r.continuation) for r in group]
    texts = Reading(model, lengths, point=point, rows=[0] * len(group), seed=seed, dtype=dtype)
    h_BTD = texts.read([r.context for r in group])
    rows: list[list[Tensor]] = [[h_BTD[b, len(r.context) - 1][None]] for b, r in enumerate(group)]
    rest = [list(r.continuation[:-1]) for r in group]
    if any(rest):
        h_BTD = texts.read(rest)
        for b, piece in enumerate(rest):
            rows[b].append(h_BTD[b, : len(piece)])
    # A continuation of nothing has no token to be judged.
    h_ND = torch.cat([torch.cat(row)[: len(r.continuation)] for row, r in zip(rows, group, strict=True)])
    labels_N = torch.tensor([token for r in group for token in r.continuation], dtype=torch.int64)
    nats_N, right_N = _of_labels(model, h_ND, labels_N.to(h_ND.device))
    if not nats_N.isfinite().all():
        raise NotFinite("the model's logits are not all finite, so that no likelihood follows from them")
    counts = [len(r.continuation) for r in group]
    return [
        Likelihood(float(nats.sum()), bool(right.all()))
        for nats, right in zip(nats_N.split(counts), right_N.split(counts), strict=True)
    ]


def _of_labels(model: LanguageModel, h_ND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """float64 log-probabilities of the labels, and whether each was the likeliest, on the host."""
    nats, right = [], []
    piece = max(1, PIECE_ELEMENTS // model.architecture.vocab)
    for h_nD, labels_n in zip(h_ND.split(piece), labels_N.split(piece), strict=True):
        logits_nV = wide(model.logits(h_nD))
        nats.append(logits_nV.log_softmax(-1).gather(1, labels_n[:, None])[:, 0].double().cpu())
        right.append((logits_nV.argmax(-1) == labels_n).cpu())
    return torch.cat(nats), torch.cat(right)
