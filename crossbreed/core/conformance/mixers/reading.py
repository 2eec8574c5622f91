"""Write always, read where chosen; and skip what is not read, where that is declared."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.counting import flops
from crossbreed.core.conformance.mixers.subject import MixerSubject, distance
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.ledger import Phase


@rule(
    "mixer",
    "read",
    says="Every token is written, read or not; outputs are zero where not read, and elsewhere those of a pass that reads everything.",
    measured="No token, one, every third and all but one row reading, in training and in prefill and decode with sparse, dense and "
    "automatic execution; the tokens after that read everything. Up to rounding; of drawn settings the suite profile tries every third.",
    sizes=Sizes({"tokens": (1, 4, 21)}, {"tokens": (21,)}),
    after=("rows", "splits"),
)
def read(subject: MixerSubject, case: Case) -> None:
    tokens, more = case["tokens"], 2
    mixer, x = subject.build(case.settings), subject.input(3, tokens + more)
    at = subject.context(case.settings, 3, tokens + more)
    allowed = subject.allowed(case.settings, tokens + more)
    with torch.no_grad():
        everything, _ = subject.run(mixer, x, at)
        masks = _masks(3, tokens)
        for name in ("every third",) if subject.briefly(case.settings) else masks:
            some = masks[name]
            mask = torch.cat((some, torch.ones(3, more, dtype=torch.bool)), 1)
            wanted = everything.masked_fill(~mask[..., None], 0.0)
            ways = {
                f"prefill, then decode, {execution}": subject.run(
                    mixer, x, at.at(execution=execution), cuts=range(tokens, tokens + more), read_BT=mask
                )[0]
                for execution in ("auto", "sparse", "dense")
            }
            ways["one pass"] = subject.forward(mixer, x, at, mask)
            for way, y in ways.items():
                where = f"{way}, with {name} of {tokens} tokens reading and then all of {more}"
                require(not y[~mask].any(), f"{where}: an output is not zero where nothing reads")
                moved = distance(wanted, y)
                require(
                    moved <= allowed,
                    f"{where}: not the outputs of a pass that reads everything",
                    change=moved,
                    allowed=allowed,
                )


def _masks(count: int, tokens: int) -> dict[str, Tensor]:
    none = torch.zeros(count, tokens, dtype=torch.bool)
    one, rows = none.clone(), ~none
    one[-1, tokens // 2] = True
    rows[0] = False
    return {
        "none": none,
        "one": one,
        "every third": torch.arange(tokens).expand(count, tokens) % 3 == 1,
        "two rows": rows,
    }


def _sparse(subject: MixerSubject) -> list[Phase]:
    return [phase for phase in get_args(Phase) if subject.able.execution.get(phase) == "sparse"]


@rule(
    "mixer",
    "skips",
    says="Where it states sparse execution, tokens that do not read skip work.",
    measured="FLOPs dispatched for a piece of 64 tokens (one token in decode): without reading at most what its cost calls written, with "
    "a quarter or half reading at most that and so much of the rest; within 1%.",
    unless=lambda subject: "" if _sparse(subject) else "it states dense execution in every phase",
    after=("read", "executed-flops"),
)
def skips(subject: MixerSubject, case: Case) -> None:
    for phase in _sparse(subject):
        none, everything = (flops(subject, case.settings, phase, share) for share in (0.0, 1.0))
        cost = subject.cost(case.settings, phase, 64)
        written = cost.write.executed_forward if phase != "train" else cost.write.executed_training
        require(
            none <= 1.01 * written + 1,
            f"{phase}: tokens that do not read cost more than is written",
            dispatched=none,
            written=written,
        )
        if phase != "decode":
            for name, share in (("a quarter", 0.25), ("half", 0.5))[subject.briefly(case.settings) :]:
                some = flops(subject, case.settings, phase, share)
                wanted = written + (everything - written) * share
                require(
                    some <= 1.01 * wanted + 1,
                    f"{phase}: {name} of the tokens reading costs more than {name} of reading",
                    dispatched=some,
                    expected=wanted,
                )
