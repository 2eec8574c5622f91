"""In training: finite losses over what counts, and a gradient exactly where one is stated."""

from __future__ import annotations

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.routers.choices import hard_inputs
from crossbreed.core.conformance.routers.draws import PURE
from crossbreed.core.conformance.routers.subject import RouterSubject, differing
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.model.routing import RoutedSite


def _untrained(subject: RouterSubject) -> str:
    return "it states that it is fitted and takes no part in training" if subject.able.fitted else ""


def _hard(subject: RouterSubject) -> str:
    return _untrained(subject) or ("" if subject.able.gradient else "it states no gradient")


def _soft(subject: RouterSubject) -> str:
    return _untrained(subject) or ("it states a gradient" if subject.able.gradient else "")


@rule(
    "router",
    "losses-finite",
    says="Losses are finite numbers, and what is learned from a step stays finite, whatever the step was made of.",
    measured="Losses, parameters and buffers after steps of 1 and 9 tokens of ordinary, silent, equal, one-hot and enormous inputs, "
    "and of steps in which nothing counts.",
    faults=("T1",),
    sizes=Sizes({"tokens": (1, 9)}),
    unless=_untrained,
    after=("degenerate-inputs",),
)
def losses_finite(subject: RouterSubject, case: Case) -> None:
    for place in subject.places(case.settings):
        site = subject.site(case.settings, place)
        for name, h, at in hard_inputs(subject, site, case["tokens"]):
            _, losses = subject.train(site, h, at.at(phase="train"))
            for loss, value in losses.items():
                require(value.numel() == 1, f"the loss {loss!r} is no scalar, at {place}")
                finite = bool(torch.isfinite(value).all())
                require(
                    finite, f"the loss {loss!r} of {name} is {float(value)}, at {place}", loss=float(value)
                )
            site.after_step()
            for key, tensor in site.state_dict().items():
                finite = bool(torch.isfinite(tensor).all())
                require(finite, f"{key!r} is not finite after a step of {name}, at {place}")


@rule(
    "router",
    "counted-only",
    says="Losses and running statistics count only tokens that are asked and scored.",
    measured="Two of four rows are taken out of the loss mask and then replaced: losses, what a step leaves behind, and the other "
    "rows' choices stay.",
    unless=_untrained,
    after=(*PURE, "losses-finite"),
)
def counted_only(subject: RouterSubject, case: Case) -> None:
    rows, tokens = 4, 40
    for place in subject.places(case.settings):
        found = []
        for seed in (2, 3):
            site = subject.site(case.settings, place)
            h = subject.text(rows, tokens)
            h[2:] = 5 * subject.text(rows, tokens, seed=seed)[2:]
            at = subject.context(site, rows, tokens, phase="train", step=5)
            assert at.loss_mask_BT is not None
            mask = at.loss_mask_BT & (torch.arange(rows) < 2)[:, None]
            decision, losses = subject.train(site, h, at.at(loss_mask_BT=mask))
            site.after_step()
            found.append((decision.choice_BT[:2], losses, dict(site.state_dict())))
        (choice, losses, learned), (other_choice, other_losses, other_learned) = found
        count = differing(choice, other_choice)
        require(count == 0, f"tokens that do not count decide for others, at {place}", changed=count)
        for kept, other, what in ((losses, other_losses, "loss"), (learned, other_learned, "statistic")):
            for name, value in kept.items():
                same = torch.allclose(value.double(), other[name].double(), rtol=1e-9, atol=1e-12)
                require(same, f"the {what} {name!r} counts tokens that are not scored, at {place}")


@rule(
    "router",
    "gradient",
    says="Where it states a gradient, soft weights are one-hot forward and carry one to every parameter backward.",
    measured="Weights of a training pass against the choices taken; the gradient of a random weighting of them, of every parameter, "
    "finite and not zero.",
    faults=("C11",),
    unless=_hard,
    after=PURE,
)
def gradient(subject: RouterSubject, case: Case) -> None:
    rows, tokens = 4, 64
    for place in subject.places(case.settings):
        site = subject.site(case.settings, place)
        at = subject.context(site, rows, tokens, phase="train", step=5)
        decision, _ = subject.train(site, subject.text(rows, tokens), at)
        weight = decision.weight_BTN
        require(weight is not None, f"no soft weights in training, at {place}")
        assert weight is not None
        shape = (rows, tokens, place.choices)
        require(tuple(weight.shape) == shape, f"weights of shape {tuple(weight.shape)}, not {shape}")
        hard = torch.nn.functional.one_hot(decision.choice_BT, place.choices)
        off = float((weight.detach() - hard).abs().max())
        require(off < 1e-6, f"weights are not one-hot at the choice in the forward pass, at {place}", off=off)
        generator = torch.Generator().manual_seed(6)
        (weight * torch.randn(shape, generator=generator, dtype=torch.float64)).sum().backward()
        for name, norm in _norms(site).items():
            moved = 0 < norm < float("inf")
            require(moved, f"the gradient of {name!r} has norm {norm:g}, at {place}", norm=norm)


@rule(
    "router",
    "no-gradient",
    says="Where it states no gradient, it gives no soft weights: training does not run, and is not charged, every choice.",
    measured="The decision of a training pass has no weights.",
    unless=_soft,
    after=PURE,
)
def no_gradient(subject: RouterSubject, case: Case) -> None:
    for place in subject.places(case.settings):
        site = subject.site(case.settings, place)
        at = subject.context(site, 2, 9, phase="train")
        decision, _ = subject.train(site, subject.text(2, 9), at)
        require(decision.weight_BTN is None, f"soft weights in training, at {place}")


def _norms(site: RoutedSite) -> dict[str, float]:
    def norm(gradient: Tensor | None) -> float:
        return 0.0 if gradient is None else float(gradient.norm())

    return {name: norm(parameter.grad) for name, parameter in site.named_parameters()}
