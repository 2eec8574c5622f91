"""Laws that hold for any cost: more is never cheaper, work is paid by those who do it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.case import Case
from crossbreed.core.conformance.costs import statement  # noqa: F401  (its rules stand before these)
from crossbreed.core.conformance.costs.models import BOTH, SAMPLES, SIGN, layers
from crossbreed.core.conformance.costs.subject import COUNTS, FLOPS, CostSubject
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.genome import Architecture, Router
from crossbreed.core.ledger import Ledger

SERIES: dict[str, Sequence[Architecture]] = {
    "blocks": [layers(*(BOTH * n)) for n in (1, 2, 4)],
    "repeats with own weights": [layers(*BOTH, repeats=n) for n in (1, 2, 4)],
    "width of the mixers": [layers(*BOTH, width=n) for n in (2, 6, 24)],
    "d_model": [layers(*BOTH, d_model=n) for n in (8, 16, 48)],
    "vocabulary": [layers(*BOTH, vocab=n) for n in (8, 32, 300)],
}
RISING = (
    *FLOPS,
    "parameters",
    "active_parameters",
    "memory_bytes",
    "training_peak_bytes",
    "kept_bytes_per_token",
)
"""What is never cheaper in more of anything."""


@rule(
    "cost",
    "monotone-size",
    says="More blocks, more repeats, wider ones and more words are never cheaper; repeats of shared weights store no more.",
    measured="FLOPs of all phases, parameters and memory along three sizes of each.",
    after=("complete",),
)
def monotone_size(subject: CostSubject, case: Case) -> None:
    for what, series in SERIES.items():
        ledgers = [subject.ledger(case.settings, architecture) for architecture in series]
        _rise(ledgers, RISING, f"more {what}")
        _grow(ledgers, ("training_flops_per_token", "parameters"), f"more {what}")
    shared = [subject.ledger(case.settings, layers(*BOTH, repeats=n, shared=True)) for n in (1, 2, 4)]
    stored = {ledger.parameters for ledger in shared}
    require(len(stored) == 1, f"repeats of shared weights store {sorted(stored)} parameters")
    _grow(shared, FLOPS, "more repeats of shared weights")


@rule(
    "cost",
    "monotone-length",
    says="A longer context is never cheaper per token, costs no more where nothing looks back, and keeps no more state there.",
    measured="Lengths 8, 64 and 512 of a model that looks back at every token and of one that does not.",
    faults=("F9",),
    after=("complete",),
)
def monotone_length(subject: CostSubject, case: Case) -> None:
    def at(mixer: str) -> list[Ledger]:
        return [subject.ledger(case.settings, layers(mixer), tokens=n) for n in (8, 64, 512)]

    looking, fading = at(probes.LOOKING), at(probes.FADING)
    _grow(looking, (*FLOPS, "state_bytes"), "a longer context that is looked back at")
    for field in (*FLOPS, "state_bytes"):
        values = [getattr(ledger, field) for ledger in fading]
        same = all(math.isclose(values[0], value) for value in values)
        require(same, f"{field} of a model that never looks back changes with its length: {values}")


@rule(
    "cost",
    "conditional-work",
    says="Work is charged at the rate of those who do it: what every token writes in full, what is read by the readers' share.",
    measured="Gates and halts at rates 0, 1/2 and 1 whose reads skip work: nothing is cheaper at a higher rate, costs at 1/2 lie "
    "midway for one gate, at 0 something is still written; given rates are echoed and called realised.",
    faults=("C8", "F9"),
    after=("complete", "executed-flops"),
)
def conditional_work(subject: CostSubject, case: Case) -> None:
    shares = (0.0, 0.5, 1.0)
    gated = layers(probes.FADING, gate=SIGN)
    halting = layers(*BOTH, repeats=3, shared=True, halt=SIGN)
    for architecture, linear in ((gated, True), (halting, False)):
        sites = list(subject.ledger(case.settings, architecture).rates)
        ledgers = []
        for share in shares:
            rates = dict.fromkeys(sites, (1 - share, share))
            ledger = subject.ledger(case.settings, architecture, rates=rates)
            echoed = ledger.realised and all(
                math.isclose(a, b)
                for site in sites
                for a, b in zip(ledger.rates[site], rates[site], strict=True)
            )
            require(echoed, f"rates {rates} came back as {ledger.rates}, realised {ledger.realised}")
            ledgers.append(ledger)
        _grow(ledgers, FLOPS, "a higher rate of the dearer choice")
        for field in FLOPS if linear else ():
            none, half, all_ = (getattr(ledger, field) for ledger in ledgers)
            require(
                math.isclose(half, (none + all_) / 2, rel_tol=1e-9),
                f"{field} at a rate of one half is {half:g}, not midway between {none:g} and {all_:g}",
                half=half,
            )
    nominal = [
        subject.ledger(
            case.settings, layers(probes.FADING, gate=Router(name=probes.SIGN, params={"rate": r}))
        )
        for r in shares
    ]
    require(not any(ledger.realised for ledger in nominal), "nominal rates are called realised")
    _grow(nominal, FLOPS, "a higher nominal rate of the dearer choice")


@rule(
    "cost",
    "parts",
    says="The lines of a ledger add up to its totals, and stand at sites that exist.",
    measured="Parameters, state, all FLOPs and traffic of the lines against the totals, within 1e-9.",
    after=(
        "complete",
        "executed-flops",
        "algorithmic-flops",
        "units",
        "parameters",
        "state-bytes",
        "per-token",
        "monotone-length",
        "conditional-work",
    ),
)
def parts(subject: CostSubject, case: Case) -> None:
    sums = (
        "parameters",
        "active_parameters",
        "state_bytes",
        *(f for f in COUNTS if f.endswith("flops_per_token")),
    )
    for name, architecture in SAMPLES.items():
        ledger = subject.ledger(case.settings, architecture)
        lines = ledger.parts
        twice = [site for site, count in Counter(line.site for line in lines).items() if count > 1]
        require(not twice, f"the ledger of {name!r} has several lines at {twice}")
        for field in sums:
            if field == "recompute_flops_per_token":
                continue
            total, whole = math.fsum(getattr(line, field) for line in lines), getattr(ledger, field)
            close = math.isclose(total, whole, rel_tol=1e-9, abs_tol=1e-9)
            require(
                close,
                f"the lines of {name!r} add up to {total:g} {field}, not to {whole:g}",
                lines=total,
                whole=whole,
            )


def _rise(ledgers: Sequence[Ledger], fields: Sequence[str], what: str) -> None:
    _ordered(ledgers, fields, lambda a, b: b >= a * (1 - 1e-12), f"{what} makes", "cheaper")


def _grow(ledgers: Sequence[Ledger], fields: Sequence[str], what: str) -> None:
    _ordered(ledgers, fields, lambda a, b: b > a, f"{what} does not make", "dearer")


def _ordered(
    ledgers: Sequence[Ledger],
    fields: Sequence[str],
    legal: Callable[[float, float], bool],
    what: str,
    how: str,
) -> None:
    assert set(fields) <= set(COUNTS)
    for field in fields:
        values = [float(getattr(ledger, field)) for ledger in ledgers]
        for less, more in pairwise(values):
            require(legal(less, more), f"{what} {field} {how}: {values}", less=less, more=more)
