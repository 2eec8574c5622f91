"""Along time: nothing looks ahead, any split is the whole, rows and documents are apart, segments cover every token."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.routers.draws import PURE
from crossbreed.core.conformance.routers.subject import Pass, Place, RouterSubject, differing, rows_of
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.context import Context, Recorder
from crossbreed.core.model.routing import RoutedSite

PREFIXES, TOKENS = (1, 3, 7, 15, 31, 32, 63), 64
"""Leaks that are aligned with blocks of 2 to 64 all show."""
LATER, MORE = (65, 127), 130
"""Prefixes of a longer row: leaks from one block of 64 into the one before it."""


SECOND = 9
"""Tokens of the second of three documents."""


def _not_causal(subject: RouterSubject) -> str:
    return "" if subject.able.causal else "it states that it is not causal"


def _passes(
    subject: RouterSubject, case: Case, rows: int, tokens: int, starts: tuple[int, ...] = ()
) -> Iterator[tuple[Place, Pass]]:
    for place in subject.places(case.settings):
        yield place, subject.passed(case.settings, place, rows, tokens, starts)


@rule(
    "router",
    "causal",
    says="In evaluation no choice depends on a later token.",
    measured="Everything after the first 1, 3, 7, 15, 31, 32 or 63 of 64 tokens, or 65 or 127 of 130, is replaced, labels included; "
    "choices of the prefix in 16 rows may change only where they change with the last bits of the input.",
    faults=("C1", "C2", "C3", "C5"),
    sizes=Sizes({"prefix": (*PREFIXES, *LATER)}, {"prefix": (1, 15, 31, 32, 65)}),
    unless=_not_causal,
    after=PURE,
)
def causal(subject: RouterSubject, case: Case) -> None:
    rows, prefix = 16, case["prefix"]
    tokens = TOKENS if prefix < TOKENS else MORE
    for place, one in _passes(subject, case, rows, tokens):
        h, at = one.h_BTD, one.at
        other = subject.text(rows, tokens, seed=prefix + 100)
        changed = torch.cat((h[:, :prefix], 3 * other[:, prefix:]), 1)
        if at.labels_BT is not None:
            later = subject.labels(rows, tokens, seed=prefix + 200)
            at = at.at(labels_BT=torch.cat((at.labels_BT[:, :prefix], later[:, prefix:]), 1))
        after, _ = subject.decide(subject.site(case.settings, place), changed, at)
        count = differing(one.choice_BT[:, :prefix], after[:, :prefix], one.firm_BT[:, :prefix])
        require(
            count == 0,
            f"choices of the first {prefix} of {tokens} tokens change with later tokens, at {place}",
            changed=count,
            of=rows * prefix,
        )


@rule(
    "router",
    "length",
    says="A row that ends early is decided as far as it goes like a longer one, a single token too.",
    measured="The first 1, 2, 3, 4, 33 and 63 of 64 tokens alone against the same tokens of the whole row.",
    faults=("C8",),
    sizes=Sizes({"tokens": (1, 2, 3, 4, 33, 63)}, {"tokens": (1, 2, 3, 33)}),
    unless=_not_causal,
    after=("causal",),
)
def length(subject: RouterSubject, case: Case) -> None:
    rows, tokens = 16, case["tokens"]
    for place, one in _passes(subject, case, rows, 64):
        h, at = one.h_BTD, one.at
        alone, _ = subject.decide(subject.site(case.settings, place), h[:, :tokens], at.slice(0, tokens))
        count = differing(alone, one.choice_BT[:, :tokens], one.firm_BT[:, :tokens])
        require(
            count == 0,
            f"{tokens} tokens alone are decided otherwise than as the beginning of 64, at {place}",
            changed=count,
            of=rows * tokens,
        )


@rule(
    "router",
    "splits",
    says="Any split of a row is decided like the whole, in pieces and token by token, and the state keeps its structure.",
    measured="65 tokens of 4 rows cut at one place, in ragged pieces, and in single tokens by decoding, against one pass; names, "
    "sizes and dtypes of the state stay.",
    faults=("D1", "D2", "D4"),
    sizes=Sizes({"split": (1, 2, 3, 15, 16, 17, 63, 64)}, {"split": (1, 16, 63)}),
    after=(*PURE, "length"),
)
def splits(subject: RouterSubject, case: Case) -> None:
    rows, tokens, split = 4, 65, case["split"]
    ways = {f"cut at {split}": (split,), "cut in ragged pieces": (split, *range(split + 3, tokens, 7))}
    if split == 1:
        ways["token by token"] = tuple(range(1, tokens))
    for place, one in _passes(subject, case, rows, tokens):
        h, at = one.h_BTD, one.at
        for name, cuts in ways.items():
            site = subject.site(case.settings, place)
            empty = site.init_state(rows, None)
            pieces, state = subject.decide(site, h, at, cuts)
            count = differing(one.choice_BT, pieces, one.firm_BT)
            require(count == 0, f"choices differ when {name}, at {place}", changed=count, of=rows * tokens)
            for key in empty.keys() | state.keys():
                kept = key in empty and key in state and _kind(empty[key]) == _kind(state[key])
                require(kept, f"the state {key!r} changes its structure, at {place}")


@rule(
    "router",
    "documents",
    says="A new document and a new row start afresh.",
    measured="The second and the third of three documents packed into a row against each alone; and a row after another one by the "
    "same router, from a fresh state.",
    faults=("D6",),
    sizes=Sizes({"start": (1, 5, 16, 20)}, {"start": (5, 16)}),
    after=("splits",),
)
def documents(subject: RouterSubject, case: Case) -> None:
    rows, tokens, start = 4, 40, case["start"]
    third = start + SECOND
    for place, one in _passes(subject, case, rows, tokens, starts=(start, third)):
        h, at = one.h_BTD, one.at
        site = subject.site(case.settings, place)
        subject.decide(site, subject.text(rows, tokens, seed=77), at)
        for first, end in ((start, third), (third, tokens)):
            here = slice(first, end)
            alone, _ = subject.decide(site, h[:, here], at.slice(first, end))
            count = differing(alone, one.choice_BT[:, here], one.firm_BT[:, here])
            require(
                count == 0,
                f"a document that begins after {first} tokens of others is decided otherwise than alone, at {place}",
                changed=count,
                of=rows * (end - first),
            )


@rule(
    "router",
    "rows",
    says="In evaluation no row's choices depend on the rows beside it, nor on how far those go.",
    measured="Rows 3 and 1 of 16 alone; and rows of 5 and 9 valid tokens side by side, which then go on, each against itself alone.",
    faults=("D7", "T5"),
    after=("splits",),
)
def rows(subject: RouterSubject, case: Case) -> None:
    tokens, more = 9, 8
    for place, one in _passes(subject, case, 16, tokens):
        h, at = one.h_BTD, one.at
        some = [3, 1]
        alone, _ = subject.decide(subject.site(case.settings, place), h[some], rows_of(at, some))
        count = differing(alone, one.choice_BT[some], one.firm_BT[some])
        require(count == 0, f"choices depend on the other rows of the batch, at {place}", changed=count)
        _ragged(subject, case, place, h[:2], rows_of(at, [0, 1]), more)


def _ragged(subject: RouterSubject, case: Case, place: Place, h: Tensor, at: Context, more: int) -> None:
    """Two rows that end at 5 and 9 tokens and then go on, side by side and each alone."""
    site, lengths = subject.site(case.settings, place), torch.tensor([[5], [9]])
    tokens = h.shape[1]
    next_h = subject.text(2, more, seed=8)
    next_at = subject.context(site, 2, more).at(row_id_B=at.row_id_B)
    next_at = next_at.at(positions_BT=next_at.positions_BT + lengths)
    valid = torch.arange(tokens) < lengths
    first, state = subject.decide(site, h, at.at(valid_BT=valid))
    then, _ = subject.decide(site, next_h, next_at, state=state)
    for row, count in enumerate(lengths.flatten().tolist()):
        fresh, pick = subject.site(case.settings, place), [row]
        mine = rows_of(at, pick).slice(0, count)
        alone, state = subject.decide(fresh, h[pick, :count], mine)
        goes_on, _ = subject.decide(fresh, next_h[pick], rows_of(next_at, pick), state=state)
        wrong = differing(first[pick, :count], alone) + differing(then[pick], goes_on)
        require(
            wrong == 0,
            f"a row of {count} valid tokens is decided otherwise beside another, at {place}",
            changed=wrong,
        )


@rule(
    "router",
    "segments",
    says="Every token of a segment takes the segment's choice, in training too, and a last short segment is one like the others.",
    measured="Two segments and 1 or 3 further tokens: one choice a segment, every asked token counted once by the site.",
    faults=("C10",),
    sizes=Sizes({"rest": (1, 3)}),
    after=("splits",),
)
def segments(subject: RouterSubject, case: Case) -> None:
    for place in subject.places(case.settings):
        segment = subject.site(case.settings, place).segment
        if segment is None:
            continue
        require(isinstance(segment, int) and segment >= 1, f"its segment is {segment!r}, at {place}")
        rows, tokens = 8, 2 * segment + case["rest"]
        for phase in ("prefill",) if subject.able.fitted else ("prefill", "train"):
            site = subject.site(case.settings, place)
            choice, counted = _counted(subject, site, rows, tokens, phase)
            number = torch.arange(tokens) // segment
            first = torch.arange(tokens) - torch.arange(tokens) % segment
            same = torch.equal(choice, choice[:, first])
            require(
                same, f"tokens of one of {int(number[-1]) + 1} segments differ in their choice, at {place}"
            )
            require(
                counted == rows * tokens,
                f"of {rows * tokens} tokens the site counted {counted}, at {place}",
                counted=counted,
            )


def _counted(
    subject: RouterSubject, site: RoutedSite, rows: int, tokens: int, phase: str
) -> tuple[Tensor, int]:
    """(choices, how many of them the site counted) of a pass in which every token counts."""
    recorder = Recorder()
    h = subject.text(rows, tokens)
    at = subject.context(site, rows, tokens, phase=phase, recorder=recorder, loss_mask_BT=None)
    choice = subject.train(site, h, at)[0].choice_BT if phase == "train" else subject.decide(site, h, at)[0]
    counts = [statistics["counts"] for _, statistics in recorder.records if "counts" in statistics]
    return choice, int(sum(int(count.sum()) for count in counts))


def _kind(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape
