"""Attention over a list of slots: against the written formula, its gradients, and what it keeps."""

import pytest
import torch

from crossbreed.core.conformance.kept_memory import kept_memory
from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.attention import attention_reference
from crossbreed.core.ops.depth_attention import depth_attention


def inputs(N=5, H=4, G=2, K=6, V=3, slots=4, dtype=torch.float64):
    random = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype)

    return (
        draw(N, H, K),
        [draw(N, G, K) for _ in range(slots)],
        [draw(N, G, V) for _ in range(slots)],
    )


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_it_is_the_attention_of_one_query_over_its_own_slots(groups, slots, scale):
    q, k, v = inputs(G=groups, slots=slots)
    o, weight = depth_attention(q, k, v, scale)
    wanted = attention_reference(q[:, None], torch.stack(k, 1), torch.stack(v, 1), causal=False, scale=scale)
    torch.testing.assert_close(o, wanted[:, 0], rtol=0, atol=1e-13)
    torch.testing.assert_close(weight.sum(-1), torch.ones(5, 4, dtype=torch.float64))
    shares = torch.stack(v, 1).repeat_interleave(4 // groups, 2)
    torch.testing.assert_close(torch.einsum("nhs,nshv->nhv", weight, shares), o, rtol=0, atol=1e-13)


def test_numerical_gradients_agree():
    q, k, v = inputs(N=3)
    leaves = [t.requires_grad_() for t in (q, *k, *v)]
    assert torch.autograd.gradcheck(lambda q, *s: depth_attention(q, s[:4], s[4:], 0.5)[0], leaves)


def test_the_order_of_slots_does_not_matter():
    q, k, v = inputs()
    order = [2, 0, 3, 1]
    shuffled, weight = depth_attention(q, [k[j] for j in order], [v[j] for j in order])
    straight, plain = depth_attention(q, k, v)
    torch.testing.assert_close(shuffled, straight, rtol=0, atol=1e-14)
    torch.testing.assert_close(weight, plain[..., order], rtol=0, atol=1e-14)


def test_slots_are_kept_once_however_many_queries_read_them():
    """Queries, keys, values and weights of 6 depths; a tensor that grew by copies would keep 21 keys and values."""
    depths, N, H, K = 6, 50, 2, 8
    leaves = [torch.randn(N, H, K).requires_grad_() for _ in range(3)]
    q, k, v = leaves
    ks, vs, out = [], [], []
    with kept_memory(torch.nn.Identity()) as kept:
        for depth in range(depths):
            ks.append(k * (1.0 + depth))
            vs.append(v * (2.0 + depth))
            out.append(depth_attention(q * (1.0 + depth), ks, vs)[0])
        torch.stack(out).sum()
    weights = N * H * sum(range(1, depths + 1))
    assert kept.bytes == 4 * (3 * depths * N * H * K + weights)


def test_bfloat16_softmax_is_wide():
    q, k, v = inputs(N=40, dtype=torch.bfloat16)
    o, weight = depth_attention(q, k, v)
    assert (o.dtype, weight.dtype) == (torch.bfloat16, torch.float32)
    exact, _ = depth_attention(q.double(), [t.double() for t in k], [t.double() for t in v])
    torch.testing.assert_close(o.double(), exact, rtol=0.03, atol=0.03)


def test_shapes_that_do_not_fit_are_named():
    q, k, v = inputs()
    with pytest.raises(ConfigError, match="0 keys and 0 values"):
        depth_attention(q, [], [])
    with pytest.raises(ConfigError, match="4 keys and 3 values"):
        depth_attention(q, k, v[:3])
    with pytest.raises(ConfigError, match="query heads be a multiple"):
        depth_attention(q[:, :3], k, v)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("N", "H", "G", "K", "V", "slots"),
    [(70, 2, 2, 6, 5, 1), (33, 4, 2, 16, 24, 3), (300, 4, 4, 64, 64, 16), (5, 1, 1, 8, 8, 9)],
)
def test_the_kernels_give_what_float64_gives(N, H, G, K, V, slots, dtype):
    random = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=random).to("cuda", dtype)

    # Values lie beside keys, as projections leave them.
    both = [draw(N, G, K + V).split((K, V), -1) for _ in range(slots)]
    tensors = [draw(N, H, K), *(k for k, _ in both), *(v for _, v in both)]
    own = [t.detach().requires_grad_() for t in tensors]
    wide = [t.detach().double().requires_grad_() for t in tensors]
    o, weight = depth_attention(own[0], own[1 : 1 + slots], own[1 + slots :])
    wanted, shares = depth_attention(wide[0], wide[1 : 1 + slots], wide[1 + slots :])
    grad = draw(N, H, V)
    o.backward(grad)
    wanted.backward(grad.double())
    allowed = 1e-5 if dtype == torch.float32 else 1e-2
    assert (o.dtype, weight.dtype) == (dtype, torch.float32)
    for mine, its in [
        (o, wanted),
        (weight, shares),
        *((a.grad, b.grad) for a, b in zip(own, wide, strict=True)),
    ]:
        assert (mine.double() - its).norm() <= allowed * its.norm() + 1e-6
