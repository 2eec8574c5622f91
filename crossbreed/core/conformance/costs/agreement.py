"""A ledger against the model it is about: weights, state, and what is really multiplied."""

from __future__ import annotations

import math
from functools import cache

import torch

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.costs.models import SAMPLES, forced, layers
from crossbreed.core.conformance.costs.subject import EXECUTED, HALF, CostSubject
from crossbreed.core.conformance.flop_count import count_flops
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.contracts.task import Batch
from crossbreed.core.host import Registry
from crossbreed.core.model.language_model import LanguageModel

SLACK = 0.01
"""Relative difference allowed between executed FLOPs and the count of those dispatched (design section 5)."""


@rule(
    "cost",
    "parameters",
    says="Parameters are those of the built model: tied and shared ones once.",
    measured="The ledger of seven small models against the numbers that their modules hold.",
)
def parameters(subject: CostSubject, case: Case) -> None:
    for name, architecture in SAMPLES.items():
        stated = subject.ledger(case.settings, architecture).parameters
        held = sum(parameter.numel() for parameter in subject.built(architecture).parameters())
        require(
            stated == held, f"{name!r} has {held} parameters, the ledger {stated}", stated=stated, held=held
        )


@rule(
    "cost",
    "state-bytes",
    says="State bytes are those of the real state object after so many tokens.",
    measured="A prefill of 24 and of 40 tokens by seven small models, in float32.",
    faults=("D10",),
    sizes=Sizes({"tokens": (24, 40)}),
)
def state_bytes(subject: CostSubject, case: Case) -> None:
    for name, architecture in SAMPLES.items():
        stated = subject.ledger(case.settings, architecture, tokens=case["tokens"]).state_bytes
        model, tokens = subject.built(architecture), _tokens(case["tokens"])
        with torch.no_grad():
            _, state = model(tokens, model.context(tokens), model.init_state(1))
        assert state is not None
        held = state.mixer_bytes()
        require(
            stated == held,
            f"{name!r} holds {held} bytes of state, the ledger {stated:g}",
            stated=stated,
            held=held,
        )


@rule(
    "cost",
    "executed-flops",
    says="Executed FLOPs per token are what PyTorch dispatches, a multiply-add being 2.",
    measured="Training, prefill and decode of 24 and of 70 tokens by seven small models, decisions forced to rates of one half, within 1 %.",
    faults=("F1", "F2", "F4", "F5"),
    sizes=Sizes({"tokens": (24, 70)}, {"tokens": (24,)}),
)
def executed_flops(subject: CostSubject, case: Case) -> None:
    tokens = case["tokens"]
    for name, architecture in SAMPLES.items():
        nominal = subject.ledger(case.settings, architecture).rates
        ledger = subject.ledger(
            case.settings, architecture, tokens=tokens, rates=dict.fromkeys(nominal, HALF) or None
        )
        for field, count in zip(EXECUTED, _dispatched(name, tuple(nominal), tokens), strict=True):
            stated = getattr(ledger, field)
            require(
                abs(stated - count) <= SLACK * count,
                f"{field} of {name!r} is {stated:g}, but {count:g} are dispatched",
                stated=stated,
                dispatched=count,
            )


@rule(
    "cost",
    "algorithmic-flops",
    says="FLOPs that budgets are held to are those of the mathematics: visible pairs, each once, and three times forward in training.",
    measured="Of 24 and of 70 tokens: a token more costs prefill, in all, what decoding it costs; decode of it costs what is executed, since "
    "nothing is hidden from one token; training costs three times prefill. Within 1e-9.",
    faults=("F5", "F9"),
    sizes=Sizes({"tokens": (24, 70)}, {"tokens": (24,)}),
    after=("complete", "executed-flops", "monotone-size", "monotone-length", "conditional-work"),
)
def algorithmic_flops(subject: CostSubject, case: Case) -> None:
    tokens = case["tokens"]
    for name, mixer in (("never looks back", probes.FADING), ("looks back", probes.LOOKING)):
        before, here = (
            subject.ledger(case.settings, layers(mixer), tokens=number) for number in (tokens - 1, tokens)
        )
        total, less = (ledger.tokens * ledger.prefill_flops_per_token for ledger in (here, before))
        for field, stated, wanted in (
            ("decode FLOPs", here.decode_flops_per_token, here.executed_decode_flops_per_token),
            (f"prefill FLOPs of {tokens} tokens in all", total, less + here.decode_flops_per_token),
            ("training FLOPs", here.training_flops_per_token, 3 * here.prefill_flops_per_token),
        ):
            require(
                math.isclose(stated, wanted, rel_tol=1e-9),
                f"{field} of a model that {name} are {stated:g}, its mathematics take {wanted:g}",
                stated=stated,
                wanted=wanted,
            )


@cache
def _dispatched(name: str, sites: tuple[str, ...], tokens: int) -> tuple[float, float, float]:
    """FLOPs a token of training, of prefill, and of the next token: of probes alone, whatever is under check."""
    model = LanguageModel(SAMPLES[name], probes.with_probes(Registry()), seed=1)
    text = _tokens(tokens)
    choices = forced(sites, tokens)

    def training() -> None:
        at = model.context(text, phase="train", labels_BT=text, forced=choices)
        model.loss(Batch(text, text), at).objective.backward()

    @torch.no_grad()
    def prefill() -> None:
        model.logits(model(text, model.context(text, forced=choices))[0])

    # A token that reads and one that does not: the mean is that of a rate of one half, if halts are asked alike.
    return count_flops(training) / tokens, count_flops(prefill) / tokens, _next_token(model, text, sites)


def _next_token(model: LanguageModel, text: torch.Tensor, sites: tuple[str, ...]) -> float:
    """The mean over decisions at the last token, each choice at each site as often as the other."""
    costs = []
    with torch.no_grad():
        _, state = model(
            text[:, :-1], model.context(text[:, :-1], state=(empty := model.init_state(1))), empty
        )
        assert state is not None
        for number in range(2 ** len(sites)):
            choice = {site: torch.tensor([[number >> i & 1]]) for i, site in enumerate(sites)}
            last = text[:, -1:]
            at = model.context(last, phase="decode", state=state, forced=choice)
            costs.append(count_flops(lambda at=at, last=last: model.logits(model(last, at, state)[0])))  # type: ignore[misc]
    return sum(costs) / len(costs)


def _tokens(count: int) -> torch.Tensor:
    return torch.arange(count)[None] % 7
