"""The depthwise convolution against PyTorch's own, forward and backward, and what counters see of it."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from crossbreed.core.ops.depthwise import depthwise_conv


def inputs(B, S, C, W, dtype=torch.float64):
    random = torch.Generator().manual_seed(0)
    shapes = ((B, S, C), (C, W), (C,))
    return [
        torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in shapes
    ]


def by_torch(x, weight, bias):
    return F.conv1d(x.mT, weight[:, None], bias, groups=len(weight)).mT


@pytest.mark.parametrize(("S", "W"), [(1, 1), (4, 4), (5, 4), (66, 4), (67, 3)])
def test_output_and_gradients_equal_pytorchs(S, W):
    own, theirs = inputs(2, S, 5, W), inputs(2, S, 5, W)
    y, wanted = depthwise_conv(*own), by_torch(*theirs)
    torch.testing.assert_close(y, wanted)
    grad = torch.randn_like(wanted)
    y.backward(grad)
    wanted.backward(grad)
    for mine, its in zip(own, theirs, strict=True):
        torch.testing.assert_close(mine.grad, its.grad)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_wanted_gradients_are_made(wanted):
    tensors = [t.detach().requires_grad_(w) for t, w in zip(inputs(2, 9, 3, 4), wanted, strict=True)]
    depthwise_conv(*tensors).sum().backward()
    assert [t.grad is not None for t in tensors] == list(wanted)


def test_it_runs_without_a_bias_and_in_low_precision():
    x, weight, _ = inputs(2, 9, 3, 4, torch.bfloat16)
    y = depthwise_conv(x, weight)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == weight.grad.dtype == torch.bfloat16
    torch.testing.assert_close(y, by_torch(x, weight, None))


def test_flop_counters_see_both_gradients():
    x, weight, bias = inputs(2, 19, 3, 4)
    with FlopCounterMode(display=False) as counter:
        depthwise_conv(x, weight, bias).sum().backward()
    # Forward over 16 places; backward the taps' gradient over the same, and the inputs' over all 19.
    assert counter.get_total_flops() == 2 * 2 * 3 * 4 * (16 + 16 + 19)


def test_the_gradient_of_the_taps_is_an_operation_that_torch_accepts():
    x = inputs(2, 9, 3, 4)[0].detach()
    grad = torch.randn(2, 6, 3, dtype=torch.float64)
    torch.library.opcheck(torch.ops.crossbreed.tap_gradients.default, (x, grad))


@pytest.mark.gpu
@pytest.mark.parametrize(("S", "C", "W"), [(1, 5, 1), (4, 5, 4), (5, 7, 4), (66, 24, 4), (260, 130, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_give_what_float64_gives(S, C, W, dtype):
    own = [t.detach().to("cuda", dtype).requires_grad_() for t in inputs(3, S, C, W)]
    wide = [t.detach().double().requires_grad_() for t in own]
    y, wanted = depthwise_conv(*own), by_torch(*wide)
    grad = torch.randn_like(y)
    y.backward(grad)
    wanted.backward(grad.double())
    tolerance = 1e-5 if dtype == torch.float32 else 8e-3
    assert y.dtype == dtype
    for mine, its in [(y, wanted), *((a.grad, b.grad) for a, b in zip(own, wide, strict=True))]:
        assert (mine.double() - its).norm() <= tolerance * its.norm()


@pytest.mark.gpu
def test_the_kernels_compute_in_autocasts_precision_from_wide_weights():
    own = [t.detach().to("cuda", torch.float32) for t in inputs(3, 20, 8, 4)]
    with torch.autocast("cuda", torch.bfloat16):
        assert depthwise_conv(*own).dtype == torch.bfloat16
