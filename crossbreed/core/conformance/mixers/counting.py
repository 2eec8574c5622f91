"""FLOPs that a mixer dispatches, per token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from crossbreed.core.conformance.flop_count import count_flops
from crossbreed.core.conformance.mixers.subject import MixerSubject
from crossbreed.core.contracts.router import Decision
from crossbreed.core.ledger import Phase

ROWS = 2


def flops(
    subject: MixerSubject,
    settings: Mapping[str, Any],
    phase: Phase,
    share: float,
    *,
    mode: int = 0,
    tokens: int = 64,
) -> float:
    """FLOPs a token of one depth when that share of tokens reads, by one reader; in decode, of the token after the others.

    Training: forward and backward. Raises UncountedWork for an operation that no formula is known for.
    """
    dtype = "float32" if "float32" in subject.able.dtypes else subject.dtype
    mixer = subject.build(settings, dtype=dtype).train(phase == "train")
    x = subject.input(ROWS, tokens, dtype=dtype)
    at = subject.context(settings, ROWS, tokens, phase=phase).at(
        mode=Decision(torch.full((ROWS, tokens), mode))
    )
    step = round(1 / share) if share else tokens + 1
    read_BT = torch.arange(1, tokens + 1).expand(ROWS, tokens) % step == 0
    if phase == "decode":
        with torch.no_grad():
            states = subject.begin(mixer, x, slots=tokens)
            _, states = subject.run(
                mixer, x[:, :-1], at.slice(0, tokens - 1).at(phase="prefill"), states=states
            )
            last, read = at.slice(tokens - 1, tokens), read_BT[:, -1:]
            return (
                _counted(lambda: subject.run(mixer, x[:, -1:], last, states=states, read_BT=read))
                / ROWS
                / subject.depths
            )
    x.requires_grad_(phase == "train")

    def once() -> None:
        with torch.set_grad_enabled(phase == "train"):
            y = subject.forward(mixer, x, at, read_BT)
            if phase == "train" and y.requires_grad:
                y.square().sum().backward()

    return _counted(once) / (ROWS * tokens * subject.depths)


def _counted(run: Any) -> float:
    """The count; a product of known size beside it, since to count nothing is an error and some mixers multiply nothing."""
    one = torch.ones(1, 1)
    return count_flops(lambda: (one @ one, run())) - 2.0
