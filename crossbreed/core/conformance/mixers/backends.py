"""Backends: every implementation of a mixer computes what the reference computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from crossbreed.core.conformance.case import Case
from crossbreed.core.conformance.mixers.subject import MixerSubject, distance
from crossbreed.core.conformance.rule import require, rule

TOKENS, CUT = 130, 65
GRADIENTS = {"float64": 1e-6, "float32": 1e-2, "bfloat16": 0.2, "float16": 0.1}
"""Differences of all gradients together that rounding explains, as shares of their norm."""


@rule(
    "mixer",
    "backends",
    says="Every backend computes what the reference computes.",
    measured="Outputs of 130 tokens, whole and in two pieces, and gradients, of each backend that can be built here, with the same weights; in the "
    "narrowest dtype, and in each wider one that the backend does not refuse; on a CUDA device where it needs one. Up to rounding.",
    faults=("N11",),
    unless=lambda subject: (
        "" if len(list(subject.backends({}))) > 1 else "no backend but the reference can run here"
    ),
    after=("splits",),
)
def backends(subject: MixerSubject, case: Case) -> None:
    at = subject.context(case.settings, 2, TOKENS)
    for backend in (name for name in subject.backends(case.settings) if name != "reference"):
        for dtype in reversed(subject.dtypes(case.settings, backend)):
            x = subject.input(2, TOKENS, dtype=dtype)
            reference, other = (
                subject.build(case.settings, backend=name, dtype=dtype) for name in ("reference", backend)
            )
            other.load_state_dict(reference.state_dict())
            allowed = subject.allowed(case.settings, TOKENS, backend="reference", dtype=dtype)
            with torch.no_grad():
                wanted, _ = subject.run(reference, x, at)
                for cuts in ([], [CUT]):
                    moved = distance(wanted, subject.run(other, x, at, cuts=cuts)[0])
                    require(
                        moved <= allowed,
                        f"in {dtype} backend {backend} differs from the reference",
                        change=moved,
                        allowed=allowed,
                    )
            if subject.able.same_in_training:
                _same_gradients(subject, case.settings, x, reference, other, f"in {dtype} backend {backend}")


def _same_gradients(
    subject: MixerSubject, settings: Mapping[str, Any], x: Tensor, reference: Any, other: Any, which: str
) -> None:
    wanted, got = (_gradients(subject, settings, mixer, x) for mixer in (reference, other))
    off = float((got - wanted).norm() / wanted.norm().clamp(min=1e-12))
    allowed = GRADIENTS[str(x.dtype).removeprefix("torch.")]
    require(
        off <= allowed, f"{which} has other gradients than the reference", difference=off, allowed=allowed
    )


def _gradients(subject: MixerSubject, settings: Mapping[str, Any], mixer: Any, x: Tensor) -> Tensor:
    """Gradients of the input and of all parameters, in one row of float64."""
    x = x.detach().requires_grad_()
    at = subject.context(settings, 2, TOKENS, phase="train")
    subject.forward(mixer.train(), x, at).double().square().mean().backward()
    tensors = (x, *mixer.parameters())
    found = [torch.zeros_like(t) if t.grad is None else t.grad for t in tensors]
    return torch.cat([gradient.double().cpu().flatten() for gradient in found])
