"""The fused gated norm against its two steps, and the kernels of all norms against float64.

Under TRITON_INTERPRET=1 the kernels themselves run on a CPU as well (``-m gpu -k alone``), in float16, since Triton's interpreter
takes bfloat16 for integers.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.norm import gated_rms_norm, l2_norm, rms_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NARROW = torch.bfloat16 if DEVICE == "cuda" else torch.float16


def in_two_steps(x, gate, weight, eps=1e-5, gate_first=True):
    if gate_first:
        return F.rms_norm(x * F.silu(gate), x.shape[-1:], weight, eps)
    return F.rms_norm(x, x.shape[-1:], weight, eps) * F.silu(gate)


def gate_behind(x, gate, weight):
    return gated_rms_norm(x, gate, weight, gate_first=False)


@pytest.mark.parametrize("gate_first", [True, False])
@pytest.mark.parametrize("shape", [(2, 5, 24), (2, 3, 4, 7), (1, 1)])
def test_values_and_gradients_equal_the_two_steps(shape, gate_first):
    random = torch.Generator().manual_seed(0)
    x, gate, grad = (torch.randn(*shape, generator=random, dtype=torch.float64) for _ in range(3))
    gate = torch.stack((gate, gate), -1)[..., 0]  # strided, like a slice of a projection
    leaves = [
        t.requires_grad_() for t in (x, gate, torch.randn(shape[-1], generator=random, dtype=torch.float64))
    ]
    for eps in (1e-5, 0.5):
        y = gated_rms_norm(*leaves, eps, gate_first=gate_first)
        wanted = in_two_steps(*leaves, eps, gate_first)
        torch.testing.assert_close(y, wanted)
        torch.testing.assert_close(
            torch.autograd.grad(y, leaves, grad), torch.autograd.grad(wanted, leaves, grad)
        )


def test_numerical_gradients_agree():
    leaves = [
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3), (2, 3), (3,))
    ]
    assert torch.autograd.gradcheck(gated_rms_norm, leaves)


def test_inputs_are_left_alone_and_zero_stays_finite():
    x, gate, weight = torch.zeros(3, 8), torch.zeros(3, 8), torch.ones(8)
    leaves = [t.clone().requires_grad_() for t in (x, gate, weight)]
    gated_rms_norm(*leaves).sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(leaves, (x, gate, weight), strict=True))
    assert all(t.grad.isfinite().all() for t in leaves)


def test_bf16_is_computed_in_fp32_and_rounded_once():
    x, gate = torch.randn(2, 4, 64).bfloat16(), torch.randn(2, 4, 64).bfloat16()
    weight = torch.randn(64)
    y = gated_rms_norm(x, gate, weight)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, gated_rms_norm(x.float(), gate.float(), weight).bfloat16())


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ConfigError, match="gate must be shaped like x"):
        gated_rms_norm(torch.ones(2, 4), torch.ones(2, 3), torch.ones(4))


@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm_is_pytorchs(weighted):
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
    weight = torch.linspace(0.5, 2.0, 7) if weighted else None
    torch.testing.assert_close(rms_norm(x, weight, 0.1), F.rms_norm(x, (7,), weight, 0.1))


def test_l2_norm_has_length_one_and_leaves_zero():
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
    x[0] = 0.0
    torch.testing.assert_close(l2_norm(x).norm(dim=-1), torch.tensor([0.0, 1.0, 1.0]))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 65, 24), (3, 5, 4, 48), (2, 9, 4100)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("function", "takes"),
    [(rms_norm, "xw"), (rms_norm, "x"), (l2_norm, "x"), (gated_rms_norm, "xgw"), (gate_behind, "xgw")],
)
def test_kernels_give_values_and_gradients_of_float64(shape, dtype, function, takes):
    random = torch.Generator().manual_seed(0)
    sizes = {"x": shape, "g": shape, "w": shape[-1:]}
    own = [torch.randn(*sizes[name], generator=random).to("cuda", dtype).requires_grad_() for name in takes]
    wide = [t.detach().double().requires_grad_() for t in own]
    y, wanted = function(*own), function(*wide)
    grad = torch.randn(*shape, generator=random).to("cuda", dtype)
    got = torch.autograd.grad(y, own, grad)
    right = torch.autograd.grad(wanted, wide, grad.double())
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    assert y.dtype == dtype
    assert (y.double() - wanted).norm() <= tolerance * wanted.norm()
    for mine, its, leaf in zip(got, right, wide, strict=True):
        # Of one number a row the norm keeps the sign alone: its gradient is what the epsilon leaves.
        assert (mine.double() - its).norm() <= tolerance * (its.norm() + 0.2 * leaf.numel() ** 0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 1, 40), (3, 5, 48), (2, 1, 3, 24), (3, 5, 4, 7), (2, 4, 2048)])
@pytest.mark.parametrize("dtype", [torch.float32, NARROW])
@pytest.mark.parametrize("takes", ["x", "xw", "xgw", "xgw behind"])
@pytest.mark.parametrize("few", [True, False])
def test_kernels_alone_read_slices_where_they_lie(monkeypatch, shape, dtype, takes, few):
    """Of training, prefill and one decoded token; a gate is a slice of a projection, and so may x be."""
    from crossbreed.core.ops import norm as ours
    from crossbreed.core.ops.kernels import norm

    monkeypatch.setattr(norm, "FEW", 512 if few else 0)
    random, width = torch.Generator().manual_seed(0), math.prod(shape[2:])

    def sliced(first):
        whole = torch.randn(*shape[:2], width + 16, generator=random).to(DEVICE, dtype)
        return whole[..., first : first + width].view(shape)

    x, gate = sliced(8), sliced(3) if "g" in takes else None
    weight = torch.randn(shape[-1], generator=random).to(DEVICE) if "w" in takes else None
    grad = torch.randn(shape, generator=random).to(DEVICE, dtype)
    settings = (1 / shape[-1], 1e-5, "behind" not in takes)
    M = ours._together(x)
    assert (shape[2] if len(shape) == 4 else 1) == M
    x_NMD, gate_NMD = ours._groups(x, M), None if gate is None else ours._groups(gate, M)
    assert x_NMD.data_ptr() == x.data_ptr()
    y = norm.forward(x_NMD, gate_NMD, weight, *settings)
    found = norm.backward(grad.reshape(-1, shape[-1]), x_NMD, gate_NMD, weight, *settings)

    wide = [None if t is None else t.detach().double().requires_grad_() for t in (x, gate, weight)]
    if gate is None:
        wanted = F.rms_norm(wide[0], shape[-1:], wide[2], 1e-5)
    else:
        wanted = in_two_steps(wide[0], wide[1], wide[2], 1e-5, settings[2])
    wanted.backward(grad.double())
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    for mine, its in zip((y, *found), (wanted, *(None if t is None else t.grad for t in wide)), strict=True):
        assert (mine is None) == (its is None)
        if its is not None:
            assert mine.numel() == its.numel()
            assert (mine.double().view(its.shape) - its).norm() <= tolerance * its.norm()
