"""Rows, padding and documents: no row sees another, no document sees another, padding leaves no trace."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.subject import MixerSubject, distance, rows
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.context import Context


@rule(
    "mixer",
    "rows",
    says="A row's output depends on that row alone.",
    measured="Five rows, in another order, beside other rows and one alone, in one piece and in two; up to rounding.",
    sizes=Sizes({"tokens": (1, 2, 6, 20)}, {"tokens": (1, 6)}),
    after=("fresh-state",),
)
def rows_apart(subject: MixerSubject, case: Case) -> None:
    tokens, order = case["tokens"], [2, 0, 4, 1, 3]
    mixer, x = subject.build(case.settings), subject.input(5, tokens)
    at = subject.context(case.settings, 5, tokens)
    other = torch.cat((x[:1], 3 * subject.input(4, tokens, seed=8)))
    allowed = subject.allowed(case.settings, tokens)
    with torch.no_grad():
        for cuts in ([], [tokens // 2]) if tokens > 1 else ([],):
            y, turned, beside = (
                subject.run(mixer, x, at, cuts=cuts)[0],
                subject.run(mixer, x[order], rows(at, order), cuts=cuts)[0],
                subject.run(mixer, other, at, cuts=cuts)[0],
            )
            moved = distance(y[order], turned)
            require(
                moved <= allowed, "rows in another order have other outputs", change=moved, allowed=allowed
            )
            moved = distance(y[:1], beside[:1])
            require(moved <= allowed, "a row changes with the rows beside it", change=moved, allowed=allowed)
            alone = subject.run(mixer, x[-1:], rows(at, [len(x) - 1]), cuts=cuts)[0]
            moved = distance(y[-1:], alone)
            require(moved <= allowed, "a row changes with the number of rows", change=moved, allowed=allowed)


@rule(
    "mixer",
    "ragged",
    says="Tokens that are not valid write nothing and have output zero.",
    measured="Rows of lengths T, 0, 1 and T/2, then a piece, or single decoded tokens, that go on with each where it stopped and end at other "
    "lengths, against each row alone; up to rounding.",
    faults=("D7",),
    sizes=Sizes({"tokens": (2, 5, 13)}, {"tokens": (13,)}),
    after=("rows", "splits"),
)
def ragged(subject: MixerSubject, case: Case) -> None:
    tokens, more = case["tokens"], 6
    first, second = [tokens, 0, 1, tokens // 2], [0, 5, 6, 2]
    mixer, x = subject.build(case.settings), subject.input(4, tokens)
    y, again = subject.input(4, more, seed=6), subject.context(case.settings, 4, tokens + more)
    valid, later_valid = _prefix(first, tokens), _prefix(second, more)
    at = again.slice(0, tokens).at(valid_BT=valid)
    later = again.slice(tokens, tokens + more).at(
        positions_BT=torch.tensor(first)[:, None] + torch.arange(more), valid_BT=later_valid
    )
    allowed = subject.allowed(case.settings, tokens)
    with torch.no_grad():
        for how, cuts in (("", ()), (" decoded", range(1, more))):
            # States may be written in place without gradients, so each way begins anew.
            out, states = subject.run(mixer, x, at)
            more_out, _ = subject.run(mixer, y, later, cuts=cuts, states=states)
            for name, piece, kept in (("first", out, valid), ("second", more_out, later_valid)):
                require(
                    not piece[~kept].any(), f"in the {name} piece a token that is not valid has an output"
                )
            for row, (a, b) in enumerate(zip(first, second, strict=True)):
                alone = torch.cat((x[row : row + 1, :a], y[row : row + 1, :b]), 1)
                got = torch.cat((out[row : row + 1, :a], more_out[row : row + 1, :b]), 1)
                moved = distance(subject.run(mixer, alone, _joined(at, later, row, a, b))[0], got)
                require(
                    moved <= allowed,
                    f"a row of {a} and then {b}{how} valid tokens differs from the same tokens without padding",
                    change=moved,
                    allowed=allowed,
                )


def _prefix(lengths: list[int], tokens: int) -> Tensor:
    return torch.arange(tokens) < torch.tensor(lengths)[:, None]


def _joined(at: Context, later: Context, row: int, a: int, b: int) -> Context:
    """The context of a row's valid tokens of both pieces, as one piece without padding."""
    one, two = rows(at, [row]).slice(0, a), rows(later, [row]).slice(0, b)
    mode = None
    if one.mode is not None and two.mode is not None:
        mode = type(one.mode)(torch.cat((one.mode.choice_BT, two.mode.choice_BT), 1))
    return one.at(positions_BT=torch.arange(a + b)[None], valid_BT=None, mode=mode)


@rule(
    "mixer",
    "documents",
    says="Documents packed into one row stay apart, so padding on the left, as a document of its own, is harmless.",
    measured="Documents of 1 to 17 tokens packed into a row, whole and in pieces that cut them, against each alone; up to rounding.",
    faults=("D7",),
    sizes=Sizes({"padding": (1, 2, 3, 9)}, {"padding": (9,)}),
    unless=lambda subject: (
        ""
        if subject.able.packing
        else "it states packing=False: neither packed documents nor padding on the left are supported"
    ),
    after=("rows", "splits"),
)
def documents(subject: MixerSubject, case: Case) -> None:
    padding, tokens = case["padding"], 30
    starts = [padding, padding + 1, padding + 4, padding + 17]
    mixer, x = subject.build(case.settings), subject.input(2, tokens)
    at = subject.context(case.settings, 2, tokens, starts=starts)
    allowed = subject.allowed(case.settings, tokens)
    with torch.no_grad():
        apart = [
            subject.run(mixer, x[:, start:stop], at.slice(start, stop).at(document_BT=None))[0]
            for start, stop in pairwise([0, *starts, tokens])
        ]
        for cuts in ([], [padding], [padding + 2, padding + 10]):
            packed = subject.run(mixer, x, at, cuts=cuts)[0]
            moved = distance(torch.cat(apart, 1), packed)
            require(
                moved <= allowed,
                f"documents after {padding} tokens of padding see what is before them (pieces cut at {cuts or 'none'})",
                change=moved,
                allowed=allowed,
            )
