"""On a GPU: fused recurrences compute what the recurrences do step by step in float64, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from crossbreed.core.ops.attention import attention, attention_reference
from crossbreed.core.ops.delta_rule import gated_delta_rule_recurrent
from crossbreed.core.ops.fused import delta_rule_fla, ssd_fla, ssd_mamba
from crossbreed.core.ops.norm import l2_norm
from crossbreed.core.ops.ssd import ssd_recurrent

pytestmark = pytest.mark.gpu
B, H = 2, 4
FORWARD, BACKWARD = 0.02, 0.04
"""Allowed norm of the difference as a share of the norm: a few roundings to bfloat16 (2^-9 each)."""
SHAPES = [(2, 16, 16), (63, 24, 48), (65, 48, 24), (130, 96, 128)]
"""Tokens, key size, value size."""


class Inputs:
    """Random inputs, rounded to bfloat16 and held in float64: both sides see the same numbers."""

    def __init__(self, tokens: int, K: int, V: int, *, groups: int = H, seed: int = 0) -> None:
        g = torch.Generator(device="cuda").manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g, device="cuda", dtype=torch.bfloat16).double()

        self.q, self.k = normal(B, tokens, groups, K), normal(B, tokens, groups, K)
        self.v = normal(B, tokens, H, V)
        self.step = torch.rand(B, tokens, H, generator=g, device="cuda").double() * 0.5
        self.rate = -torch.rand(H, generator=g, device="cuda").double()
        self.state, self.skip = normal(B, H, K, V), normal(H)
        self.grad_o, self.grad_state = normal(B, tokens, H, V), normal(B, H, K, V)
        self.reset = torch.rand(B, tokens, generator=g, device="cuda") < 0.03
        self.valid = torch.arange(tokens, device="cuda") < torch.tensor(
            [[tokens], [tokens // 2 + 1]], device="cuda"
        )


def off(got: Tensor, wanted: Tensor) -> float:
    assert got.shape == wanted.shape
    got, wanted = got.detach(), wanted.detach()
    return float((got.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-9))


def compare(
    fused, reference, inputs: dict[str, Tensor], narrow: set[str], grads: tuple[Tensor, Tensor]
) -> None:
    """Outputs, the last state and every gradient of ``fused`` beside those of ``reference`` in float64."""
    results = []
    for function, double in ((fused, False), (reference, True)):
        leaves = {
            name: x.detach()
            .to(torch.float64 if double else torch.bfloat16 if name in narrow else torch.float32)
            .requires_grad_()
            for name, x in inputs.items()
        }
        o, state = function(**leaves)
        ((o.double() * grads[0]).sum() + (state.double() * grads[1]).sum()).backward()
        results.append((o, state, {name: x.grad for name, x in leaves.items()}))
    (o, state, gradients), (wanted_o, wanted_state, wanted) = results
    assert off(o, wanted_o) < FORWARD
    assert off(state, wanted_state) < FORWARD
    for name, gradient in wanted.items():
        assert off(gradients[name], gradient) < BACKWARD, name


def heads(x: Tensor) -> Tensor:
    return x.repeat_interleave(H // x.shape[2], dim=2)


@pytest.mark.parametrize("mask", ["none", "reset", "valid"])
@pytest.mark.parametrize(("tokens", "K", "V"), SHAPES)
@pytest.mark.parametrize("groups", [H, 1])
def test_flas_delta_rule(tokens, K, V, groups, mask):
    pytest.importorskip("fla", reason="flash-linear-attention is not installed")
    given = Inputs(tokens, K, V, groups=groups)
    masks = {f"{mask}_BT": getattr(given, mask)} if mask != "none" else {}

    def fused(q, k, v, step, beta, state):
        return delta_rule_fla(q, k, v, -step, beta, state_BHKV=state, normalise=True, **masks)

    def reference(q, k, v, step, beta, state):
        q, k = heads(l2_norm(q)), heads(l2_norm(k))
        return gated_delta_rule_recurrent(q, k, v, -step, beta, state_BHKV=state, **masks)

    inputs = {
        "q": given.q,
        "k": given.k,
        "v": given.v,
        "step": given.step,
        "beta": given.step + 0.3,
        "state": given.state,
    }
    compare(fused, reference, inputs, {"q", "k", "v"}, (given.grad_o, given.grad_state))


@pytest.mark.parametrize("mask", ["none", "reset", "valid"])
@pytest.mark.parametrize("groups", [H, 1])
@pytest.mark.parametrize(
    ("kernel", "tokens", "K", "V"),
    [(kernel, *shape) for kernel in ("fla", "mamba_ssm") for shape in SHAPES],
)
def test_state_space_duality(kernel, tokens, K, V, groups, mask):
    pytest.importorskip(kernel, reason=f"{kernel} is not installed")
    given = Inputs(tokens, K, V, groups=groups)
    masks = {f"{mask}_BT": getattr(given, mask)} if mask != "none" else {}

    def fused(q, k, v, step, rate, skip, state):
        rest = {"step_BTH": step, "skip_H": skip, "state_BHKV": state, **masks}
        if kernel == "fla":
            return ssd_fla(heads(q), heads(k), v, step * rate, **rest)
        return ssd_mamba(q, k, v, rate, **rest)

    def reference(q, k, v, step, rate, skip, state):
        return ssd_recurrent(q, k, v, step * rate, step_BTH=step, skip_H=skip, state_BHKV=state, **masks)

    inputs = {name: getattr(given, name) for name in ("q", "k", "v", "step", "rate", "skip", "state")}
    if kernel == "fla":
        # A rate of each token: the sum over all of them cancels to less than what rounding leaves of its terms.
        inputs["rate"] = given.rate.expand(B, tokens, H)
    compare(fused, reference, inputs, {"q", "k", "v"}, (given.grad_o, given.grad_state))


@pytest.mark.parametrize("window", [None, 17])
@pytest.mark.parametrize(("tokens", "K"), [(1, 64), (63, 24), (65, 48), (130, 96), (256, 128)])
@pytest.mark.parametrize("groups", [H, 1])
@pytest.mark.parametrize("kernel", ["sdpa", "flash_attn"])
def test_attention_kernels(kernel, tokens, K, groups, window):
    if kernel == "flash_attn":
        pytest.importorskip(kernel, reason="flash-attn is not installed")
    given = Inputs(tokens, K, K)
    inputs = {"q": given.q, "k": given.k[:, :, :groups], "v": given.v[:, :, :groups]}

    def with_state(function, **options):
        return lambda q, k, v: (function(q, k, v, window=window, **options), q.new_zeros(()))

    grads = (given.grad_o, torch.zeros((), device="cuda").double())
    fused, reference = with_state(attention, kernel=kernel), with_state(attention_reference)
    if tokens > 1:
        compare(fused, reference, inputs, {"q", "k", "v"}, grads)
        return
    # One token attends to itself alone: its query and key have no gradient to compare.
    got = fused(*(x.bfloat16() for x in inputs.values()))[0]
    assert off(got, reference(*inputs.values())[0]) < FORWARD
