"""What a router says about itself: its rates and its cost."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import torch

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.flop_count import count_flops
from crossbreed.core.conformance.routers.draws import PURE
from crossbreed.core.conformance.routers.subject import D_MODEL, SITES, VOCAB, Place, RouterSubject
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.ledger import Shape, Work
from crossbreed.core.model.routing import RoutedSite

SEEDS, ROWS = 48, 8
COUNTED = 64
"""Tokens of which FLOPs are counted."""
SIGMAS = 6.0
"""Standard errors by which a true rate may miss: no correct router is accused in a lifetime."""


@rule(
    "router",
    "rates",
    says="Nominal rates are a distribution over the choices, and true where the choice is drawn whatever the input.",
    measured="Where other inputs do not change the choices, the mean share of each choice over 48 seeds may miss its nominal rate "
    "by 6 standard errors. Where they do, a rate before training is a guess, and the realised one is what counts.",
    faults=("C8", "C10"),
    after=PURE,
)
def rates(subject: RouterSubject, case: Case) -> None:
    config = subject.config(case.settings)
    for place in subject.places(case.settings):
        site = subject.bare(case.settings, place)
        nominal = [float(rate) for rate in site.router.rates(config, place.kind, place.choices)]
        require(len(nominal) == place.choices, f"{len(nominal)} nominal rates, at {place}")
        legal = min(nominal) >= 0 and math.isclose(sum(nominal), 1, abs_tol=1e-6)
        require(legal, f"nominal rates {nominal} are no distribution, at {place}", sum=sum(nominal))
        # One that is fitted has no choices of its own before that.
        if site.schedule is None and not subject.able.fitted and not _looks(subject, site):
            _true(subject, site, place, nominal)


def _looks(subject: RouterSubject, site: RoutedSite) -> bool:
    """Whether the input, or the labels, change any choice: from silence to certainty."""
    tokens = 2 * (int(site.segment or 16)) + 1
    at, h = subject.context(site, ROWS, tokens), subject.text(ROWS, tokens)
    found = [subject.decide(site, size * h, at)[0] for size in (0.0, 0.1, 1.0, -10.0, 1000.0)]
    if at.labels_BT is not None:
        at = at.at(labels_BT=subject.labels(ROWS, tokens, seed=33))
        found.append(subject.decide(site, 0.0 * h, at)[0])
    return not all(torch.equal(found[0], other) for other in found)


def _true(subject: RouterSubject, site: RoutedSite, place: Place, nominal: list[float]) -> None:
    tokens = 4 * (int(site.segment or 16))
    h = subject.text(ROWS, tokens)
    shares: list[list[float]] = [[] for _ in nominal]
    for seed in range(SEEDS):
        at = subject.context(site, ROWS, tokens, seed=seed)
        choice = subject.decide(site, h, at)[0]
        for n, share in enumerate(shares):
            share.append(float((choice == n).double().mean()))
    for n, share in enumerate(shares):
        error = SIGMAS * stdev(share) / math.sqrt(SEEDS)
        off = abs(fmean(share) - nominal[n])
        require(
            off <= error + 1e-6,
            f"choice {n} is taken by {fmean(share):.3f} of the tokens, not by {nominal[n]:.3f} as stated, at {place}",
            realised=fmean(share),
            nominal=nominal[n],
            allowed=error,
        )


@rule(
    "router",
    "realised-rate",
    says="The rate that a site reports is the share of choices it really took, of a single token too.",
    measured="Counts of passes of 1 to 4 and 40 tokens, of which some are not asked, against the choices themselves.",
    faults=("C8",),
    sizes=Sizes({"tokens": (1, 2, 3, 4, 40)}),
    after=PURE,
)
def realised_rate(subject: RouterSubject, case: Case) -> None:
    tokens = case["tokens"]
    for place in subject.places(case.settings):
        site, recorder = subject.site(case.settings, place), Recorder()
        asked = torch.rand(ROWS, tokens, generator=torch.Generator().manual_seed(7)) < 0.7
        at = subject.context(site, ROWS, tokens, asked_BT=asked, recorder=recorder)
        choice, _ = subject.decide(site, subject.text(ROWS, tokens), at)
        counts = torch.stack([s["counts"] for _, s in recorder.records if "counts" in s]).sum(0)
        taken = torch.bincount(choice[asked], minlength=place.choices)
        require(
            torch.equal(counts, taken),
            f"the site reports {counts.tolist()} tokens a choice, but {taken.tolist()} took them, at {place}",
        )


@rule(
    "router",
    "cost",
    says="Its cost is what it has and does: the parameters stored, and the FLOPs of deciding.",
    measured="Stated parameters against those of the module; executed FLOPs a token against a count of what PyTorch dispatches "
    "for 64 tokens of evaluation, and of a training pass with its backward, within 1 %. Those that "
    "budgets count are no more, and no less than half of them, or half for each segment; training in proportion.",
    after=(*PURE, "inputs-unchanged"),
)
def cost(subject: RouterSubject, case: Case) -> None:
    tokens, config = COUNTED, subject.config(case.settings)
    one = torch.ones(1, 1)
    for place in subject.places(case.settings):
        site = subject.site(case.settings, place)
        build = RouterBuild(SITES[place.kind][0], place.kind, D_MODEL, VOCAB, place.choices)
        stated = site.router.cost(config, build, Shape(1, tokens, "float64", "prefill"))
        count = sum(parameter.numel() for parameter in site.parameters())
        require(
            stated.parameters == count,
            f"it states {stated.parameters} parameters and has {count}, at {place}",
            stated=stated.parameters,
            counted=count,
        )
        active = stated.active_parameters
        require(0 <= active <= count, f"{active} of {count} parameters are active, at {place}", active=active)
        if site.schedule is not None:
            continue
        h, at = subject.text(1, tokens), subject.context(site, 1, tokens)

        def run(site: RoutedSite = site, h: torch.Tensor = h, at: object = at) -> None:
            subject.decide(site, h, at)  # type: ignore[arg-type]
            # One product more, since nothing at all is nothing the counter can tell from blindness.
            torch.mm(one, one)

        dispatched = (count_flops(run) - 2) / tokens
        flops = stated.write.executed_forward
        require(
            abs(flops - dispatched) <= 0.01 * dispatched,
            f"it states {flops:g} FLOPs a token and issues {dispatched:g}, at {place}",
            stated=flops,
            dispatched=dispatched,
        )
        segment = site.segment or 1
        require(
            dispatched / (2 * segment) <= 1.01 * stated.write.forward
            and stated.write.forward <= 1.01 * flops,
            f"for budgets it states {stated.write.forward:g} FLOPs a token, of {flops:g} that it issues, at {place}",
            stated=stated.write.forward,
            dispatched=dispatched,
        )
        if not subject.able.fitted:
            _trains_as_stated(subject, case, place, stated.write)


def _trains_as_stated(subject: RouterSubject, case: Case, place: Place, work: Work) -> None:
    dispatched = _training_flops(subject, case, place)
    flops = work.executed_training
    require(
        abs(flops - dispatched) <= 0.01 * dispatched,
        f"in training it states {flops:g} FLOPs a token and issues {dispatched:g}, at {place}",
        stated=flops,
        dispatched=dispatched,
    )
    # To budgets training is to forward what it is as executed.
    wanted = work.forward * flops / work.executed_forward if work.executed_forward else 0.0
    require(
        abs(work.training - wanted) <= 0.01 * wanted,
        f"for budgets it states {work.training:g} FLOPs of training a token, not {wanted:g}, at {place}",
        stated=work.training,
        expected=wanted,
    )


def _training_flops(subject: RouterSubject, case: Case, place: Place) -> float:
    """FLOPs a token of a training pass and of going back through its weights and losses."""
    site, h = subject.site(case.settings, place), subject.text(1, COUNTED)
    at = subject.context(site, 1, COUNTED, phase="train")
    one = torch.ones(1, 1)

    def run() -> None:
        decision, losses = subject.train(site, h.requires_grad_(), at)
        torch.mm(one, one)
        ways = [] if decision.weight_BTN is None else [decision.weight_BTN.sum()]
        total = sum([*ways, *losses.values()])
        if isinstance(total, torch.Tensor) and total.requires_grad:
            total.backward()

    return (count_flops(run) - 2) / COUNTED
