"""SiLU of one half times the other: values, gradients, and what is kept."""

import pytest
import torch
import torch.nn.functional as F

from crossbreed.core.ops.gated import silu_times


def both(gate, up):
    """(output and gradients of ours, the same of plain PyTorch in float64); without ``up`` of a joined tensor's halves."""
    found = []
    for function, double in ((silu_times, False), (lambda g, u: plain(g, u), True)):
        leaves = [
            None if t is None else (t.double() if double else t).detach().requires_grad_() for t in (gate, up)
        ]
        y = function(*leaves)
        grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.device, gate.dtype)
        y.backward(grad.to(y.dtype))
        found.append([y, *(t.grad for t in leaves if t is not None)])
    return found


def plain(gate, up):
    gate, up = gate.chunk(2, -1) if up is None else (gate, up)
    return F.silu(gate) * up


def inputs(shape, dtype, joined, device="cpu"):
    random = torch.Generator().manual_seed(0)
    one, other = (torch.randn(*shape, generator=random).to(device, dtype) for _ in range(2))
    return (torch.cat((one, other), -1), None) if joined else (one, other)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 4), (0, 3)])
def test_values_and_gradients_are_pytorchs(shape, joined):
    own, wanted = both(*inputs(shape, torch.float64, joined))
    torch.testing.assert_close(own, wanted)


def test_numerical_gradients_agree():
    gate, up = (t.requires_grad_() for t in inputs((3, 4), torch.float64, joined=False))
    assert torch.autograd.gradcheck(silu_times, (gate, up))
    assert torch.autograd.gradcheck(silu_times, (gate,))


@pytest.mark.gpu
def test_a_device_keeps_only_the_inputs():
    gate, _ = inputs((6, 8), torch.float32, joined=True, device="cuda")
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        silu_times(gate.requires_grad_())
    assert [t.data_ptr() for t in kept] == [gate.data_ptr()]


@pytest.mark.gpu
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("shape", [(7, 5), (2, 33, 2050), (1, 1, 1), (0, 3), (65, 1024)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_give_what_float64_gives(shape, joined, dtype):
    own, wanted = both(*inputs(shape, dtype, joined, "cuda"))
    for mine, its in zip(own, wanted, strict=True):
        assert mine.dtype == dtype
        assert (mine.double() - its).norm() <= (1e-5 if dtype == torch.float32 else 5e-3) * its.norm()


@pytest.mark.gpu
def test_the_kernels_take_tensors_that_lie_otherwise():
    gate, up = (t.mT for t in inputs((24, 40), torch.float32, joined=False, device="cuda"))
    own, wanted = both(gate, up)
    torch.testing.assert_close([t.double() for t in own], wanted, rtol=1e-5, atol=1e-6)
