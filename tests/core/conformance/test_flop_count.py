from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from crossbreed.core.conformance.flop_count import UncountedWork, count_flops


def pytorch_counts(run) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def test_a_product_counts_two_for_each_multiply_add() -> None:
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert count_flops(lambda: a @ b) == 2 * 3 * 5 * 7
    assert count_flops(lambda: torch.einsum("ij,jk->ik", a, b)) == 2 * 3 * 5 * 7
    assert count_flops(lambda: a[0] @ b) == count_flops(lambda: b.T @ a[0]) == 2 * 5 * 7
    assert count_flops(lambda: torch.dot(a[0], a[1])) == 2 * 5


def test_inference_mode_counts_the_same() -> None:
    layer, x = torch.nn.Linear(6, 4), torch.randn(3, 6)
    outside = count_flops(lambda: layer(x))
    with torch.inference_mode():
        assert count_flops(lambda: layer(x)) == outside == 2 * 3 * 6 * 4


def test_attention_on_a_cpu_counts_all_pairs_forward_and_backward() -> None:
    q, k, v = (torch.randn(2, 3, 7, 4, requires_grad=True) for _ in range(3))
    forward = 2 * 2 * 3 * 7 * 7 * (4 + 4)
    assert count_flops(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)) == forward
    both = count_flops(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward())
    assert both == 3.5 * forward
    assert pytorch_counts(lambda: F.scaled_dot_product_attention(q, k, v)) == 0


def test_a_triangular_solve_counts_half_a_product() -> None:
    a, b = torch.eye(4).expand(5, 4, 4), torch.randn(5, 4, 3)

    def solve() -> object:
        return torch.linalg.solve_triangular(a, b, upper=False)

    assert count_flops(solve) == 5 * 4 * 4 * 3
    assert pytorch_counts(solve) == 0


def test_a_grouped_convolution_counts_its_taps_in_both_directions() -> None:
    x, w = torch.randn(2, 6, 10, requires_grad=True), torch.randn(6, 1, 4, requires_grad=True)
    forward = 2 * 2 * 6 * 7 * 4
    assert count_flops(lambda: F.conv1d(x, w, groups=6)) == forward
    assert count_flops(lambda: F.conv1d(x, w, groups=6).sum().backward()) == 3 * forward
    assert pytorch_counts(lambda: F.conv1d(x, w, groups=6).sum().backward()) > 3 * forward


def test_an_operation_of_a_plugins_own_needs_a_formula() -> None:
    library = torch.library.Library("crossbreed_test", "FRAGMENT")
    library.define("product(Tensor a, Tensor b) -> Tensor")
    library.impl("product", lambda a, b: torch.mm(a, b), "CPU")
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    product = torch.ops.crossbreed_test.product
    with pytest.raises(UncountedWork, match=r"crossbreed_test\.product may multiply"):
        count_flops(lambda: product(a, b))
    assert pytorch_counts(lambda: product(a, b)) == 0
    formula = {product: lambda a, b: 2 * a.shape[0] * a.shape[1] * b.shape[1]}
    assert count_flops(lambda: product(a, b), formula) == 2 * 3 * 5 * 7


def test_what_a_function_of_its_own_dispatches_is_seen() -> None:
    class Opaque(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.T, a.T @ grad

    a, b = torch.randn(3, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    assert count_flops(lambda: Opaque.apply(a, b).sum().backward()) == 3 * 2 * 3 * 5 * 7


def test_a_product_without_a_formula_is_an_error() -> None:
    with pytest.raises(UncountedWork, match="cholesky"):
        count_flops(lambda: torch.linalg.cholesky(torch.eye(3)))


def test_the_same_mathematics_written_without_a_product_is_element_wise() -> None:
    """A rank-one product counts, its outer form does not: element-wise work is outside the ledger, and so must be said."""
    a, b = torch.randn(32), torch.randn(32)
    assert count_flops(lambda: a[:, None] @ b[None]) == 2 * 32 * 32
    with pytest.raises(UncountedWork, match="nothing was counted"):
        count_flops(lambda: torch.outer(a, b))
