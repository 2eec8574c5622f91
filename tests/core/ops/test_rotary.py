"""Rotary embedding: the rotation by hand, relative positions, long positions and transformers' layout."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.rotary import depth_rotary, rotary


def test_each_pair_of_channels_is_rotated_by_its_own_angle():
    x = torch.randn(1, 1, 1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = rotary(x, torch.tensor([[5]]), theta=100.0)
    for i in range(3):
        angle = 5 * 100.0 ** (-2 * i / 6)
        a, b = x[0, 0, 0, i].item(), x[0, 0, 0, i + 3].item()
        assert y[0, 0, 0, i].item() == pytest.approx(a * math.cos(angle) - b * math.sin(angle), abs=1e-12)
        assert y[0, 0, 0, i + 3].item() == pytest.approx(b * math.cos(angle) + a * math.sin(angle), abs=1e-12)


def test_it_equals_the_llama_of_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason="a test extra")
    q = torch.randn(2, 7, 3, 16, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(7).expand(2, 7) + torch.tensor([[0], [40]])
    inverse = 10000.0 ** -(torch.arange(0, 16, 2) / 16)
    angle = torch.cat((positions[..., None] * inverse, positions[..., None] * inverse), -1)
    wanted, _ = llama.apply_rotary_pos_emb(q.transpose(1, 2), q.transpose(1, 2), angle.cos(), angle.sin())
    torch.testing.assert_close(rotary(q, positions), wanted.transpose(1, 2), rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([1.0, 0.5, 0.25]))
def test_scores_depend_on_relative_positions_only(query, key, shift, fraction):
    x = torch.randn(1, 2, 1, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def score(offset):
        q, k = rotary(x, torch.tensor([[query + offset, key + offset]]), fraction=fraction)[0, :, 0]
        return float(q @ k)

    assert score(shift) == pytest.approx(score(0), abs=1e-6)


def test_position_zero_and_the_unrotated_share_pass_through():
    x = torch.randn(2, 3, 2, 16, generator=torch.Generator().manual_seed(2))
    assert torch.equal(rotary(x, torch.zeros(2, 3, dtype=torch.long)), x)
    y = rotary(x, torch.full((2, 3), 9), fraction=0.25)
    assert torch.equal(y[..., 4:], x[..., 4:])
    assert not torch.equal(y[..., :4], x[..., :4])
    assert torch.equal(rotary(x, torch.full((2, 3), 9), fraction=0.0), x)


def test_bf16_inputs_turn_by_fp32_angles():
    x = torch.randn(1, 1, 1, 16, generator=torch.Generator().manual_seed(3)).bfloat16()
    position = torch.tensor([[4097]])  # not a bf16 number
    torch.testing.assert_close(
        rotary(x, position), rotary(x.double(), position).bfloat16(), rtol=1e-2, atol=1e-2
    )


def test_numerical_gradients_agree():
    x = torch.randn(1, 2, 1, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: rotary(x, torch.tensor([[3, 11]]), fraction=0.5), (x,))


@pytest.mark.parametrize(("fraction", "message"), [(1.5, "fraction is 1.5"), (0.2, "rotates 3 channels")])
def test_a_fraction_that_does_not_fit_is_refused(fraction, message):
    with pytest.raises(ConfigError, match=message):
        rotary(torch.zeros(1, 1, 1, 16), torch.zeros(1, 1), fraction=fraction)


@pytest.mark.parametrize("encoding", ["rose", "index"])
def test_between_rotated_vectors_only_the_difference_of_depths_counts(encoding):
    """RoSE on queries and keys alike: how many depths there are cancels (Dreamer's sheet, section 3)."""
    q, k = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)

    def score(i, j, depths):
        a, b = (depth_rotary(x, at, depths, encoding) for x, at in ((q, i), (k, j)))
        return (a * b).sum()

    for depths in (8, 16, 32):
        torch.testing.assert_close(score(5, 2, depths), score(5, 2, 8))
        torch.testing.assert_close(score(6, 3, depths), score(5, 2, 8))
    assert (score(5, 2, 8) - score(5, 3, 8)).abs() > 1e-3


@pytest.mark.parametrize(("encoding", "knows"), [("rose", True), ("index", False)])
def test_against_a_static_key_rose_alone_tells_the_depths_left(encoding, knows):
    q, key = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)
    few, many = ((depth_rotary(q, 3, depths, encoding) * key).sum() for depths in (8, 16))
    assert ((few - many).abs() > 1e-3) == knows
    later = (depth_rotary(q, 4, 8, encoding) * key).sum()
    assert (later - few).abs() > 1e-3


def test_rose_turns_its_halves_by_depth_and_by_depths_left():
    x = torch.randn(2, 3, 4, 12, dtype=torch.float64)
    at = torch.ones(2, 3, dtype=torch.long)
    halves = [rotary(x[..., :6], 2 * at, 50.0), rotary(x[..., 6:], 5 * at, 50.0)]
    torch.testing.assert_close(depth_rotary(x, 2, 7, "rose", 50.0), torch.cat(halves, -1))
    torch.testing.assert_close(depth_rotary(x, 2, 7, "index", 50.0), rotary(x, 2 * at, 50.0))
    assert depth_rotary(x, 2, 7, "none") is x
    with pytest.raises(ConfigError, match="multiple of 4, got 6"):
        depth_rotary(x[..., :6], 0, 2)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("H", "K", "fraction"), [(1, 2, 1.0), (3, 24, 1.0), (4, 16, 0.5), (5, 96, 0.25), (2, 16, 0.0)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("places", [(2, 65), (1, 65), (1, 1)])
def test_the_kernel_turns_as_float64_does_there_and_back(H, K, fraction, dtype, places):
    """Positions of every token, of one row for all, or one for all tokens, such as a depth."""
    random = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(2, 65, H, K, generator=random).to("cuda", dtype) for _ in range(2))
    positions = torch.randint(0, 500, places, generator=random).cuda()
    own, wide = x.clone().requires_grad_(), x.double().requires_grad_()
    y, wanted = rotary(own, positions, fraction=fraction), rotary(wide, positions, fraction=fraction)
    y.backward(grad)
    wanted.backward(grad.double())
    tolerance = 1e-4 if dtype == torch.float32 else 8e-3
    assert y.dtype == dtype
    assert (y.double() - wanted).norm() <= tolerance * wanted.norm()
    assert (own.grad.double() - wide.grad).norm() <= tolerance * wide.grad.norm()
