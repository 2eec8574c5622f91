"""Shapes and numbers: any length, every declared dtype and head size, finite whatever comes in."""

from __future__ import annotations

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.mixers.subject import FLOORS, MixerSubject, distance
from crossbreed.core.conformance.rule import require, rule
from crossbreed.core.errors import ConfigError
from crossbreed.core.model.legality import HEAD_SIZES

ODD = (1, 2, 63, 64, 65)
ODD_HEADS = (16, 24, 48, 96)
CLOSE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.05}
"""Relative error of a token, in the median, against the widest dtype."""


@rule(
    "mixer",
    "shapes",
    says="The output has the input's shape and dtype at any length, with one row and with several.",
    measured="Lengths 1, 2, 63, 64, 65 with 1 and 3 rows, with a state and without.",
    faults=("S6", "S8", "S10"),
    sizes=Sizes({"rows": (1, 3), "tokens": ODD}, {"rows": (1, 3), "tokens": (1, 65)}),
)
def shapes(subject: MixerSubject, case: Case) -> None:
    mixer, x = subject.build(case.settings), subject.input(case["rows"], case["tokens"])
    at = subject.context(case.settings, case["rows"], case["tokens"])
    with torch.no_grad():
        with_state, _ = subject.run(mixer, x, at)
        without = subject.forward(mixer, x, at)
    wanted = (*x.shape[:2], x.shape[2] * subject.depths)
    for y in (with_state, without):
        require(tuple(y.shape) == wanted, f"the output is {tuple(y.shape)}, the input {tuple(x.shape)}")
        require(y.dtype == x.dtype, f"the output is {y.dtype}, the input {x.dtype}")


@rule(
    "mixer",
    "finite",
    says="Outputs, states and gradients are finite, at ordinary and at extreme inputs.",
    measured="Inputs of size 0, 1, 100 and 1000 (a norm leaves 1) in float32, or in the widest dtype below it, over one token "
    "and over more than one chunk of 64.",
    faults=("N1", "N2"),
    sizes=Sizes(
        {"magnitude": (0, 1, 100, 1000), "tokens": (1, 70)}, {"magnitude": (0, 1, 1000), "tokens": (70,)}
    ),
    after=("shapes",),
)
def finite(subject: MixerSubject, case: Case) -> None:
    dtype = next((name for name in ("float32", "bfloat16") if name in subject.able.dtypes), subject.dtype)
    mixer = subject.build(case.settings, dtype=dtype).train()
    x = (subject.input(2, case["tokens"], dtype=dtype) * case["magnitude"]).requires_grad_()
    at = subject.context(case.settings, 2, case["tokens"], phase="train")
    y, states = subject.run(mixer, x, at)
    # A loss as flat as a log keeps the size of its own gradient out of the matter.
    (1 + y.abs()).log().mean().backward()
    require(bool(y.isfinite().all()), "the output is not finite")
    for state in states:
        for name, tensor in state.items():
            require(
                not tensor.is_floating_point() or bool(tensor.isfinite().all()),
                f"state {name!r} is not finite",
            )
    for name, tensor in (("the input", x), *mixer.named_parameters()):
        require(
            tensor.grad is None or bool(tensor.grad.isfinite().all()), f"the gradient of {name} is not finite"
        )


@rule(
    "mixer",
    "dtypes",
    says="It runs in every dtype that it declares, and to that dtype's precision.",
    measured="The output's dtype; the median over tokens of the relative error against the widest declared dtype: at most 0.1% in "
    "float32, 10% in bfloat16, 5% in float16.",
    faults=("N4",),
    sizes=Sizes({"tokens": (1, 5, 70)}, {"tokens": (70,)}),
    after=("finite", "repeatable"),
)
def dtypes(subject: MixerSubject, case: Case) -> None:
    widest = subject.input(2, case["tokens"])
    at = subject.context(case.settings, 2, case["tokens"])
    with torch.no_grad():
        exact = subject.forward(subject.build(case.settings), widest, at)
        for dtype in subject.able.dtypes:
            require(dtype in FLOORS, f"dtype {dtype!r} is none that a mixer can declare: {', '.join(FLOORS)}")
            mixer = subject.build(case.settings, dtype=dtype)
            y, _ = subject.run(mixer, widest.to(getattr(torch, dtype)), at)
            require(str(y.dtype) == f"torch.{dtype}", f"in {dtype} the output is {y.dtype}")
            error, allowed = _median_error(y, exact), CLOSE.get(dtype, FLOORS["float64"])
            require(error <= allowed, f"in {dtype} outputs are wrong", error=error, allowed=allowed)


def _median_error(y_BTC: Tensor, exact_BTC: Tensor) -> float:
    """The median, so that a choice that flips at a few tokens (of experts, say) is no error of precision."""
    error_BT = (y_BTC.double() - exact_BTC.double()).norm(dim=-1) / exact_BTC.double().norm(dim=-1).clamp(
        min=1e-6
    )
    found = float(error_BT.median())
    return found if found == found else float("inf")


def _no_head_sizes(subject: MixerSubject) -> str:
    named = [name for name in HEAD_SIZES if hasattr(subject.config({}), name)]
    return "" if named else f"it has none of the settings {', '.join(HEAD_SIZES)}"


@rule(
    "mixer",
    "head-sizes",
    says="It runs at every head size that it declares.",
    measured="Each declared one, or 16, 24, 48 and 96 where it declares any: built, run at 5 tokens, and equal in two pieces up to "
    "rounding; the suite profile tries the first and the last, of drawn settings the last.",
    faults=("S3", "S4"),
    unless=_no_head_sizes,
    after=("splits",),
)
def head_sizes(subject: MixerSubject, case: Case) -> None:
    declared = subject.able.head_sizes or ODD_HEADS
    if subject.profile.name == "suite":
        declared = declared[-1:] if case.settings else tuple(dict.fromkeys((declared[0], declared[-1])))
    for size in declared:
        sizes = {name: size for name in HEAD_SIZES if hasattr(subject.config({}), name)}
        settings = {**case.settings, **sizes}
        try:
            subject.config(settings)
        except ConfigError as error:
            # Drawn settings may exclude a size; by the defaults every declared one must be possible.
            require(bool(case.settings), f"head size {size} is declared, but its config refuses it: {error}")
            continue
        mixer, x, at = subject.build(settings), subject.input(1, 5), subject.context(settings, 1, 5)
        with torch.no_grad():
            whole, pieces = (subject.run(mixer, x, at, cuts=cuts)[0] for cuts in ((), (3,)))
        require(bool(whole.isfinite().all()), f"at head size {size} the output is not finite")
        moved, allowed = distance(whole, pieces), subject.allowed(settings, 5)
        require(
            moved <= allowed,
            f"at head size {size} two pieces differ from the whole",
            change=moved,
            allowed=allowed,
        )
