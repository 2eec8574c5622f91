"""What a router chooses: numbers of choices, at every site it states, whatever it is shown."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.routers.subject import D_MODEL, RouterSubject
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.conformance.stated import register_settings_rule
from crossbreed.core.contracts.context import Context
from crossbreed.core.model.routing import RoutedSite

register_settings_rule("router")


@rule(
    "router",
    "sites",
    says="It builds at every site that it states, and states nothing that excludes itself.",
    measured="Built with its defaults and two choices at each stated site; feedback at a site where it may not stand, and feedback "
    "beside gradient, are refused.",
)
def sites(subject: RouterSubject, case: Case) -> None:
    able = subject.able
    built = {place.kind for place in subject.places({})}
    require(bool(able.sites), "it states no site")
    for kind in able.sites:
        require(kind in built, f"it states the site {kind!r}, but cannot be built there with two choices")
    alone = set(able.feedback_sites) - set(able.sites)
    require(not alone, f"it states feedback at {sorted(alone)}, where it may not stand")
    both = bool(able.feedback_sites) and able.gradient
    require(not both, "it states both feedback and gradient; feedback cannot be differentiated")


@rule(
    "router",
    "choices",
    says="Every token gets one choice, a whole number from 0 to N-1; outside training choices are hard.",
    measured="Lengths 1, 2, 63, 64, 65 at every site, in one piece, with a state and decoded; choices are int64 of the shape of positions.",
    sizes=Sizes({"tokens": (1, 2, 63, 64, 65)}, {"tokens": (1, 2, 65)}),
    after=("sites",),
)
def choices(subject: RouterSubject, case: Case) -> None:
    rows, tokens = 3, case["tokens"]
    for place in subject.places(case.settings):
        site = subject.site(case.settings, place)
        h, at = subject.text(rows, tokens), subject.context(site, rows, tokens)
        for cuts in ((), (tokens - 1,)) if tokens > 1 else ((),):
            chosen, _ = subject.decide(site, h, at, cuts)
            _legal(chosen, place.choices, f"at {place}")
        if not site.watches(at):
            decision, _ = site(h, at, None)
            require(decision.weight_BTN is None, f"soft weights outside training, at {place}")


@rule(
    "router",
    "degenerate-inputs",
    says="Equal, silent, certain and enormous inputs are decided like any others, by a single token too.",
    measured="All zeros, all tokens equal, one-hot and +-1e4 inputs of 1 and 9 tokens, some of them not valid, before and in "
    "training.",
    sizes=Sizes({"tokens": (1, 9)}),
    after=("choices",),
)
def degenerate_inputs(subject: RouterSubject, case: Case) -> None:
    for place in subject.places(case.settings):
        for name, h, at in hard_inputs(subject, subject.site(case.settings, place), case["tokens"]):
            chosen, _ = subject.decide(subject.site(case.settings, place), h, at)
            _legal(chosen, place.choices, f"for {name}, at {place}")
            if not subject.able.fitted:
                site = subject.site(case.settings, place)
                decision, _ = subject.train(site, h, at.at(phase="train"))
                _legal(decision.choice_BT, place.choices, f"for {name} in training, at {place}")


def hard_inputs(
    subject: RouterSubject, site: RoutedSite, tokens: int
) -> Iterator[tuple[str, Tensor, Context]]:
    """Inputs at the edge of what a site shows, by name."""
    rows = 3
    one_hot = torch.eye(D_MODEL, dtype=torch.float64)[torch.arange(tokens) % D_MODEL].repeat(rows, 1, 1)
    text, at = subject.text(rows, tokens), subject.context(site, rows, tokens)
    ragged = torch.arange(tokens) < torch.tensor([[tokens], [tokens // 2], [0]])
    yield "silence", torch.zeros_like(text), at
    yield "equal tokens", text[:, :1].expand_as(text).clone(), at
    yield "one-hot inputs", 100 * one_hot, at
    yield "enormous inputs", 1e4 * text.sign(), at
    yield "rows that end early", text, at.at(valid_BT=ragged)
    yield "nothing that counts", text, at.at(loss_mask_BT=torch.zeros_like(ragged))


@rule(
    "router",
    "inputs-unchanged",
    says="What a router is shown is not changed: neither the stream, nor the context, nor the state.",
    measured="All tensors are compared with copies after a pass in evaluation and one in training.",
    after=("choices",),
)
def inputs_unchanged(subject: RouterSubject, case: Case) -> None:
    rows, tokens = 2, 9
    for place in subject.places(case.settings):
        site = subject.site(case.settings, place)
        h, at = subject.text(rows, tokens), subject.context(site, rows, tokens)
        _, state = subject.decide(site, h, at)
        later = at.at(positions_BT=at.positions_BT + tokens)
        shown = {"h": h, **{k: v for k, v in vars(later).items() if isinstance(v, Tensor)}, **state}
        before = {name: tensor.clone() for name, tensor in shown.items()}
        subject.decide(site, h, later, state=state)
        if not subject.able.fitted:
            subject.train(site, h, at.at(phase="train"))
        changed = [name for name, tensor in shown.items() if not torch.equal(tensor, before[name])]
        require(not changed, f"it changes {', '.join(changed)} in place, at {place}")


def _legal(choice_BT: Tensor, choices: int, where: str) -> None:
    low, high = (int(bound) for bound in choice_BT.aminmax())
    inside = low >= 0 and high < choices
    require(inside, f"choices from {low} to {high} {where}; there are {choices}", lowest=low, highest=high)
