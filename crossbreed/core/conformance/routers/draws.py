"""What a decision may depend on: the counter and what was trained, not generators, objects or evaluation."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.generators import generators, seed_all
from crossbreed.core.conformance.routers import choices  # noqa: F401  (its rules stand before these)
from crossbreed.core.conformance.routers.subject import Place, RouterSubject, differing
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.model.routing import RoutedSite

ROWS, TOKENS = 4, 40
PURE = ("choices", "counter-hash", "thresholds")
"""Rules without which two passes of one router cannot be compared."""


def _not_deterministic(subject: RouterSubject) -> str:
    return "" if subject.able.deterministic else "it states that the same counter may give another choice"


@rule(
    "router",
    "counter-hash",
    says="Chance comes from the context's counter alone: the same seed, step, row, document and position give the same choice, "
    "whatever the generators of torch, numpy and Python are at, and nothing is taken from them.",
    measured="Equal passes in evaluation and in training after seeding all three otherwise; then their states must be untouched.",
    faults=("C10",),
    unless=_not_deterministic,
    after=("choices",),
)
def counter_hash(subject: RouterSubject, case: Case) -> None:
    for place in subject.places(case.settings):
        site = subject.site(case.settings, place)
        for phase, run in _phases(subject).items():
            found = []
            for seed in (1, 2):
                with torch.random.fork_rng(devices=[]):
                    seed_all(seed)
                    before = generators()
                    found.append(run(copy.deepcopy(site)))
                    require(
                        generators() == before, f"{phase} takes numbers from a global generator, at {place}"
                    )
            count = differing(*found)
            require(count == 0, f"{phase} depends on a global generator, at {place}", differing=count)


@rule(
    "router",
    "thresholds",
    says="What a router has learned changes in training only, once a step, by all passes of that step alike, and never while a pass is "
    "recomputed.",
    measured="All parameters and buffers are compared bit by bit after evaluation in pieces, watched or not, a training pass that no "
    "step follows, and a step after a pass whose recorder is closed; and up to rounding after a step of two passes in either order.",
    after=("choices", "counter-hash"),
)
def thresholds(subject: RouterSubject, case: Case) -> None:
    for place in subject.places(case.settings):
        site = subject.site(case.settings, place)
        before = _learned(site)
        h, at = subject.text(ROWS, TOKENS), subject.context(site, ROWS, TOKENS)
        for recorder in (Recorder(), None):
            subject.decide(site, h, at.at(recorder=recorder), cuts=(7, 8, 9, 20))
        site.after_step()
        require(_same(before, site), f"evaluation changes what was learned, at {place}")
        if subject.able.fitted:
            continue
        train = subject.context(site, ROWS, TOKENS, phase="train", step=9)
        subject.train(site, h, train.at(recorder=Recorder(open=False)))
        site.after_step()
        require(_same(before, site), f"a recomputed pass changes what was learned, at {place}")
        subject.train(site, h, train)
        require(_same(before, site), f"a training pass changes what was learned before its step, at {place}")
        _by_all_passes(subject, case, place)


def _by_all_passes(subject: RouterSubject, case: Case, place: Place) -> None:
    """Two micro-batches, or two depths, of one step: whichever comes last, the step leaves the same behind."""
    found = []
    for order in ((61, 62), (62, 61)):
        site = subject.site(case.settings, place)
        for seed in order:
            at = subject.context(site, ROWS, TOKENS, phase="train", step=9)
            subject.train(site, subject.text(ROWS, TOKENS, seed=seed), at)
        site.after_step()
        found.append(_learned(site))
    for name, tensor in found[0].items():
        same = torch.allclose(tensor.double(), found[1][name].double(), rtol=1e-9, atol=1e-12)
        require(same, f"{name!r} after a step depends on which of its passes came last, at {place}")


@rule(
    "router",
    "same-elsewhere",
    says="Another worker and a resumed run decide the same: everything that counts is in the checkpoint and in the state.",
    measured="A router with some passes and steps behind it against one built anew from its state_dict, in evaluation, in training, "
    "and in the middle of a row from a state that was saved and loaded.",
    faults=("C10", "R7"),
    sizes=Sizes({"split": (1, 7, 16)}, {"split": (7,)}),
    unless=_not_deterministic,
    after=("choices", "counter-hash", "thresholds"),
)
def same_elsewhere(subject: RouterSubject, case: Case) -> None:
    split = case["split"]
    for place in subject.places(case.settings):
        here = subject.site(case.settings, place)
        h, at = subject.text(ROWS, TOKENS), subject.context(here, ROWS, TOKENS)
        _, state = subject.decide(here, h[:, :split], at.slice(0, split))
        there = _rebuilt(subject, case, place, here)
        loaded = _stored(state)
        rest, later = h[:, split:], at.slice(split, TOKENS)
        count = differing(
            subject.decide(here, rest, later, state=state)[0],
            subject.decide(there, rest, later, state=loaded)[0],
        )
        require(
            count == 0,
            f"a row that is resumed after {split} tokens goes on otherwise, at {place}",
            differing=count,
        )
        for phase, run in _phases(subject).items():
            # Each from the checkpoint on, in an object of its own.
            count = differing(run(here), run(_rebuilt(subject, case, place, here)))
            require(count == 0, f"{phase} differs on another worker, at {place}", differing=count)


def _phases(subject: RouterSubject) -> dict[str, Callable[[RoutedSite], Tensor]]:
    def evaluation(site: RoutedSite) -> Tensor:
        at = subject.context(site, ROWS, TOKENS)
        return subject.decide(site, subject.text(ROWS, TOKENS), at, cuts=(13,))[0]

    def training(site: RoutedSite) -> Tensor:
        at = subject.context(site, ROWS, TOKENS, phase="train", step=7)
        return subject.train(site, subject.text(ROWS, TOKENS), at)[0].choice_BT

    phases: dict[str, Callable[[RoutedSite], Tensor]] = {"evaluation": evaluation}
    return phases if subject.able.fitted else {**phases, "training": training}


def _rebuilt(subject: RouterSubject, case: Case, place: Place, site: RoutedSite) -> RoutedSite:
    other = subject.bare(case.settings, place, seed=99)
    other.load_state_dict(_stored(site.state_dict()))
    return other


def _stored(tensors: Any) -> Any:
    file = io.BytesIO()
    torch.save(dict(tensors), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _learned(site: RoutedSite) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in site.state_dict().items()}


def _same(before: dict[str, Tensor], site: RoutedSite) -> bool:
    after = site.state_dict()
    return before.keys() == after.keys() and all(torch.equal(t, after[n]) for n, t in before.items())
