"""Attention against a softmax over hand-counted slots, and its fast paths against the reference."""

import math

import pytest
import torch

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.attention import attention, attention_reference, causal_mask


def inputs(B, T, S, H, G, K, V, dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = ((B, T, H, K), (B, S, G, K), (B, S, G, V))
    return [torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def gradients(function, tensors, **options):
    leaves = [x.clone().requires_grad_() for x in tensors]
    o = function(*leaves, **options)
    weights = torch.randn(o.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return [o, *torch.autograd.grad((o * weights).sum(), leaves)]


@pytest.mark.parametrize(("T", "S", "window"), [(5, 5, None), (3, 5, None), (1, 5, 2), (5, 5, 1), (3, 5, 2)])
def test_the_reference_sees_the_slots_counted_by_hand(T, S, window):
    q, k, v = inputs(1, T, S, 2, 1, 3, 4)
    o = attention_reference(q, k, v, window=window)
    for t in range(T):
        position = S - T + t
        seen = range(0 if window is None else max(0, position - window + 1), position + 1)
        for h in range(2):
            weights = [math.exp(float(q[0, t, h] @ k[0, s, 0]) / 3**0.5) for s in seen]
            wanted = sum(w * v[0, s, 0] for w, s in zip(weights, seen, strict=True)) / sum(weights)
            torch.testing.assert_close(o[0, t, h], wanted)


@pytest.mark.parametrize(("H", "G"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize(("K", "V"), [(16, 16), (24, 48), (5, 3)])
@pytest.mark.parametrize(
    ("T", "S", "options"),
    [
        (65, 65, {}),
        (65, 65, {"causal": False}),
        (65, 65, {"window": 8}),
        (65, 65, {"window": 65}),
        (7, 65, {}),
        (7, 65, {"window": 8}),
        (1, 65, {}),
        (1, 65, {"window": 8}),
        (1, 3, {"window": 8}),
        (9, 4, {"causal": False, "scale": 0.7}),
        (65, 65, {"top_k": 3}),
        (65, 65, {"top_k": 64, "scale": 0.7}),
        (65, 65, {"top_k": 65}),
        (7, 65, {"window": 8, "top_k": 3}),
        (1, 65, {"top_k": 3}),
        (1, 65, {"window": 8, "top_k": 3}),
        (9, 4, {"causal": False, "top_k": 2}),
    ],
)
def test_every_path_equals_the_reference(H, G, K, V, T, S, options):
    tensors = inputs(2, T, S, H, G, K, V)
    for got, wanted in zip(
        gradients(attention, tensors, **options),
        gradients(attention_reference, tensors, **options),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("V", [16, 24])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_query_that_sees_nothing_gives_zero_and_no_gradient(V, dtype):
    tensors = inputs(2, 9, 9, 4, 2, 16, V, dtype)
    visible = torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(1)) < 0.5
    visible[0, 3] = visible[1, 0] = False
    got = gradients(attention, tensors, visible_BTS=visible)
    assert all(x.isfinite().all() for x in got)
    assert not got[0][0, 3].any()
    assert not got[1][1, 0].any()
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for a, b in zip(got, gradients(attention_reference, tensors, visible_BTS=visible), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("prefix", [1, 3, 7, 15, 31, 32, 63])
@pytest.mark.parametrize("options", [{}, {"window": 5}])
def test_the_past_does_not_see_the_future(prefix, options):
    tensors = inputs(1, 64, 64, 2, 1, 16, 16, torch.float32)
    before = attention(*tensors, **options)
    changed = [x.clone() for x in tensors]
    for x in changed:
        x[:, prefix:] += 1.0
    after = attention(*changed, **options)
    assert torch.equal(before[:, :prefix], after[:, :prefix])
    assert not torch.equal(before[:, prefix:], after[:, prefix:])


def test_pieces_over_growing_slots_equal_the_whole():
    q, k, v = inputs(2, 40, 40, 4, 2, 16, 16)
    for window in (None, 8):
        whole = attention(q, k, v, window=window)
        pieces = [
            attention(q[:, begin:end], k[:, :end], v[:, :end], window=window)
            for begin, end in ((0, 3), (3, 11), (11, 12), (12, 40))
        ]
        torch.testing.assert_close(torch.cat(pieces, 1), whole)


def test_bf16_is_close_to_the_reference():
    tensors = inputs(2, 33, 33, 4, 2, 16, 16, torch.bfloat16)
    wanted = attention_reference(*(x.double() for x in tensors))
    o = attention(*tensors)
    assert o.dtype == torch.bfloat16
    torch.testing.assert_close(o.double(), wanted, rtol=2e-2, atol=2e-2)


def test_the_mask_counts_back_from_the_end():
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True] * 4]
    assert causal_mask(2, 4, window=2).tolist() == [[False, True, True, False], [False, False, True, True]]


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 5, 4, 2, 1), {}, "5 causal queries over 4 slots"),
        ((1, 4, 4, 3, 2), {}, "a multiple of the key/value heads"),
        ((1, 4, 4, 2, 1), {"window": 0}, "window is 0"),
        ((1, 4, 4, 2, 1), {"window": 2, "causal": False}, "window is 2 without causal"),
        ((1, 4, 4, 2, 1), {"visible_BTS": torch.ones(1, 4, 3, dtype=torch.bool)}, r"the rule is \(1, 4, 4\)"),
    ],
)
def test_what_does_not_fit_is_refused(shape, options, message):
    with pytest.raises(ConfigError, match=message):
        attention(*inputs(*shape, 8, 8), **options)
