"""Sparse experts against all experts computed densely and masked."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops import routed_linear as routed_linear_module
from crossbreed.core.ops.routed_linear import routed_linear, routed_swiglu


def inputs(N, J, E, D, W, dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = ((N, D), (E, D, W), (E, D, W), (E, W, D), (N, J))
    tensors = [torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]
    return tensors, torch.randint(E, (N, J), generator=random)


def dense_swiglu(x, gate, up, down, expert, weight):
    hidden = F.silu(torch.einsum("nd,edf->nef", x, gate)) * torch.einsum("nd,edf->nef", x, up)
    share = (F.one_hot(expert, gate.shape[0]) * weight.unsqueeze(-1)).sum(1)
    return torch.einsum("nef,efd,ne->nd", hidden, down, share)


def dense_linear(x, w, expert, weight):
    share = (F.one_hot(expert, w.shape[0]) * weight.unsqueeze(-1)).sum(1)
    return torch.einsum("nd,edo,ne->no", x, w, share)


def gradients(function, leaves):
    leaves = [x.clone().requires_grad_() for x in leaves]
    y = function(*leaves)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return [y, *torch.autograd.grad((y * weights).sum(), leaves)]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 17), st.integers(1, 3), st.integers(1, 6), st.integers(0, 99))
def test_results_and_gradients_equal_the_dense_sum(N, J, E, seed):
    (x, gate, up, down, weight), expert = inputs(N, J, E, 3, 5, seed=seed)
    got = gradients(lambda x, g, u, d, w: routed_swiglu(x, g, u, d, expert, w), (x, gate, up, down, weight))
    wanted = gradients(lambda x, g, u, d, w: dense_swiglu(x, g, u, d, expert, w), (x, gate, up, down, weight))
    torch.testing.assert_close(got, wanted)
    got = gradients(lambda x, g, w: routed_linear(x, g, expert, w), (x, gate, weight))
    torch.testing.assert_close(
        got, gradients(lambda x, g, w: dense_linear(x, g, expert, w), (x, gate, weight))
    )


@pytest.mark.parametrize("chosen", [0, 3, 5])
def test_one_expert_for_all_tokens_leaves_the_others_without_gradient(chosen):
    (x, gate, up, down, weight), _ = inputs(9, 2, 6, 4, 4)
    expert = torch.full((9, 2), chosen)
    _, _, grad_gate, _, _, _ = gradients(
        lambda x, g, u, d, w: routed_swiglu(x, g, u, d, expert, w), (x, gate, up, down, weight)
    )
    used = grad_gate.flatten(1).any(1)
    assert used.tolist() == [e == chosen for e in range(6)]


def test_only_chosen_products_are_computed():
    (x, gate, up, down, weight), _ = inputs(9, 1, 6, 4, 4)
    for poisoned in (gate, up, down):
        poisoned[1:] = torch.nan
    y = routed_swiglu(x, gate, up, down, torch.zeros(9, 1, dtype=torch.long), weight)
    assert y.isfinite().all()


def test_no_tokens_give_no_rows_and_zero_gradients():
    (x, gate, up, down, weight), expert = inputs(0, 2, 3, 4, 5)
    y, *grads = gradients(
        lambda x, g, u, d, w: routed_swiglu(x, g, u, d, expert, w), (x, gate, up, down, weight)
    )
    assert y.shape == (0, 4)
    assert not any(g.any() for g in grads)


def test_numerical_gradients_agree():
    (x, gate, up, down, weight), expert = inputs(5, 2, 3, 2, 3)
    leaves = [t.requires_grad_() for t in (x, gate, up, down, weight)]
    assert torch.autograd.gradcheck(lambda x, g, u, d, w: routed_swiglu(x, g, u, d, expert, w), leaves)


def test_bf16_stays_bf16_and_close():
    (x, gate, up, down, weight), expert = inputs(33, 2, 4, 8, 16, torch.bfloat16)
    y = routed_swiglu(x, gate, up, down, expert, weight.float())
    wide = dense_swiglu(*(t.double() for t in (x, gate, up, down)), expert, weight.double())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), wide, rtol=5e-2, atol=0.05 * wide.abs().max().item())


@pytest.mark.parametrize("bad", [-1, 3])
def test_an_expert_that_does_not_exist_is_refused(bad):
    (x, gate, _, _, weight), expert = inputs(5, 2, 3, 4, 4)
    expert[2, 1] = bad
    with pytest.raises(ConfigError, match=r"they must lie in 0\.\.2"):
        routed_linear(x, gate, expert, weight)


def test_shapes_that_do_not_fit_are_named():
    (x, gate, up, down, weight), expert = inputs(5, 2, 3, 4, 6)
    with pytest.raises(ConfigError, match="rows must agree"):
        routed_linear(x[:, :3], gate, expert, weight)
    with pytest.raises(ConfigError, match="3 gates, 2 ups and 3 downs"):
        routed_swiglu(x, gate, up[:2], down, expert, weight)


@pytest.mark.parametrize(("N", "J", "E", "D", "F"), [(65, 2, 4, 48, 24), (33, 2, 5, 50, 27), (7, 1, 2, 8, 3)])
def test_grouped_products_of_any_sizes_equal_the_dense_sum(monkeypatch, N, J, E, D, F):
    """PyTorch's grouped product on a CPU, which takes the same filled-up matrices."""
    monkeypatch.setattr(routed_linear_module, "_grouped", lambda x_ND: True)
    (x, gate, up, down, weight), expert = inputs(N, J, E, D, F)
    leaves = [t.bfloat16().double() for t in (x, gate, up, down, weight)]
    wanted = gradients(lambda *a: dense_swiglu(*a[:4], expert, a[4]), leaves)
    with torch.autocast("cpu", torch.bfloat16):
        got = gradients(lambda *a: routed_swiglu(*a[:4], expert, a[4]), [t.float() for t in leaves])
    for mine, other in zip(got, wanted, strict=True):
        assert mine.shape == other.shape
        assert (mine.double() - other).norm() <= 0.03 * other.norm()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("N", "J", "E", "D", "F"),
    [(1, 2, 4, 48, 24), (65, 2, 4, 48, 24), (300, 3, 64, 48, 24), (65, 2, 5, 50, 27)],
)
def test_grouped_products_on_a_gpu_equal_the_dense_sum_without_waiting_for_it(N, J, E, D, F):
    (x, gate, up, down, weight), expert = inputs(N, J, E, D, F)
    leaves = [t.bfloat16().double().cuda() for t in (x, gate, up, down, weight)]
    expert = expert.cuda()
    wanted = gradients_on(lambda *a: dense_swiglu(*a[:4], expert, a[4]), leaves)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", torch.bfloat16):
            got = gradients_on(lambda *a: routed_swiglu(*a[:4], expert, a[4]), [t.float() for t in leaves])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for mine, other in zip(got, wanted, strict=True):
        assert (mine.double() - other).norm() <= 0.03 * other.norm()


@pytest.mark.gpu
@pytest.mark.parametrize(("N", "J", "D"), [(1, 1, 5), (33, 3, 1100), (9, 8, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_of_weighted_sums_give_what_float64_gives(N, J, D, dtype):
    from crossbreed.core.ops.kernels import gather_sum

    random = torch.Generator().manual_seed(0)
    rows = torch.randn(N * J, D, generator=random).to("cuda", dtype)
    grad = torch.randn(N, D, generator=random).to("cuda", dtype)
    weight = torch.rand(N, J, generator=random).cuda()
    place = torch.randperm(N * J, generator=random).view(N, J).cuda()
    wide = [t.double().requires_grad_() for t in (rows, weight)]
    wanted = (wide[0][place] * wide[1][..., None]).sum(1)
    wanted.backward(grad.double())
    found = (
        gather_sum.forward(rows, place, weight),
        *gather_sum.backward(grad, rows, place, weight),
        gather_sum.forward(rows, place, None),
    )
    exact = (wanted, *(t.grad for t in wide), rows.double()[place].sum(1))
    for mine, its in zip(found, exact, strict=True):
        assert (mine.double() - its).norm() <= (1e-5 if dtype == torch.float32 else 5e-3) * its.norm()


def gradients_on(function, leaves):
    leaves = [x.clone().requires_grad_() for x in leaves]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad(y.double().square().sum(), leaves)]
