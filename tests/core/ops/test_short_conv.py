"""The short convolution against a loop over taps, whole, in pieces, ragged and packed."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.short_conv import short_conv


def inputs(B, T, C, W, seed=0):
    random = torch.Generator().manual_seed(seed)
    shapes = ((B, T, C), (C, W), (C,), (B, W - 1, C))
    return [torch.randn(*shape, generator=random, dtype=torch.float64) for shape in shapes]


def by_hand(x, weight, bias, tail, valid, reset):
    """One row, one token at a time: the list of inputs is emptied at a reset."""
    W = weight.shape[1]
    ys, tails = [], []
    for row in range(x.shape[0]):
        past = [*tail[row]]
        for t in range(x.shape[1]):
            if not valid[row, t]:
                ys.append(torch.zeros_like(bias))
                continue
            if reset[row, t]:
                past = [torch.zeros_like(bias)] * (W - 1)
            past = [*past, x[row, t]]
            ys.append(bias + sum(past[-W + w] * weight[:, w] for w in range(W)))
            past = past[1:]
        tails.append(torch.stack(past) if past else x.new_zeros(0, x.shape[2]))
    return torch.stack(ys).view_as(x), torch.stack(tails)


@pytest.mark.parametrize("W", [1, 2, 4])
@pytest.mark.parametrize("T", [1, 2, 3, 4, 17])
def test_it_equals_a_causal_conv1d(W, T):
    x, weight, bias, _ = inputs(2, T, 5, W)
    y, tail = short_conv(x, weight, bias)
    padded = F.pad(x.mT, (W - 1, 0))
    torch.testing.assert_close(y, F.conv1d(padded, weight.unsqueeze(1), bias, groups=5).mT)
    torch.testing.assert_close(tail, padded.mT[:, T:])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_pieces_lengths_and_resets_equal_a_loop_over_tokens(data):
    T, W = data.draw(st.integers(1, 12), "tokens"), data.draw(st.integers(1, 5), "width")
    x, weight, bias, tail = inputs(2, T, 3, W, data.draw(st.integers(0, 99), "seed"))
    flags = st.lists(st.booleans(), min_size=2 * T, max_size=2 * T)
    reset = torch.tensor(data.draw(flags, "resets")).view(2, T)
    valid = torch.arange(T) < torch.tensor([[data.draw(st.integers(0, T), "length")], [T]])
    wanted = by_hand(x, weight, bias, tail, valid, reset)
    edges = sorted({0, T, *data.draw(st.lists(st.integers(0, T), max_size=3), "cuts")})
    ys = []
    for begin, end in itertools.pairwise(edges):
        piece = slice(begin, end)
        masks = {"valid_BT": valid[:, piece], "reset_BT": reset[:, piece]}
        y, tail = short_conv(x[:, piece], weight, bias, tail_BWC=tail, **masks)
        ys.append(y)
    torch.testing.assert_close(torch.cat(ys, 1), wanted[0])
    torch.testing.assert_close(tail, wanted[1])


@pytest.mark.parametrize("masks", ["none", "valid", "reset", "both"])
def test_numerical_gradients_agree(masks):
    tensors = [x.requires_grad_() for x in inputs(2, 6, 3, 4)]
    options = {}
    if masks in ("valid", "both"):
        options["valid_BT"] = torch.arange(6) < torch.tensor([[6], [2]])
    if masks in ("reset", "both"):
        options["reset_BT"] = torch.tensor([[0, 0, 1, 0, 0, 1], [0, 1, 0, 0, 0, 0]]).bool()

    def conv(x, weight, bias, tail):
        return short_conv(x, weight, bias, tail_BWC=tail, **options)

    assert torch.autograd.gradcheck(conv, tensors)


def test_no_resets_and_an_all_false_reset_agree():
    x, weight, bias, tail = inputs(2, 9, 5, 4)
    plain = short_conv(x, weight, bias, tail_BWC=tail)
    masked = short_conv(x, weight, bias, tail_BWC=tail, reset_BT=torch.zeros(2, 9, dtype=torch.bool))
    torch.testing.assert_close(masked, plain)


def test_the_tail_is_a_copy_of_the_inputs_in_their_dtype():
    x, weight, _, _ = (t.bfloat16() for t in inputs(1, 40, 5, 4))
    _, tail = short_conv(x, weight)
    assert tail.dtype == torch.bfloat16
    assert torch.equal(tail, x[:, -3:])
    assert tail.untyped_storage().nbytes() == tail.numel() * 2


def test_shapes_that_do_not_fit_are_named():
    x, weight, bias, tail = inputs(2, 9, 5, 4)
    with pytest.raises(ConfigError, match=r"tail has shape \(2, 2, 5\); the rule is \(2, 3, 5\)"):
        short_conv(x, weight, bias, tail_BWC=tail[:, 1:])
    with pytest.raises(ConfigError, match="weight has 4 channels; the inputs have 5"):
        short_conv(x, weight[:4], bias)
