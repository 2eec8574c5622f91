"""Casts of weights: made once while a block lasts, with gradients that are those of all uses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crossbreed.core.ops import casts


@pytest.fixture
def weight() -> nn.Parameter:
    return nn.Parameter(torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0)))


def test_a_weight_and_each_part_of_it_is_cast_once_in_a_block(weight):
    with casts.once():
        whole, part = casts.cast(weight, torch.bfloat16), casts.cast(weight[..., 2:6], torch.bfloat16)
        with casts.once():
            assert casts.cast(weight, torch.bfloat16) is whole
        assert casts.cast(weight[..., 2:6], torch.bfloat16) is part
        others = (weight[..., 3:7], weight[..., 2:5], weight[..., 2:6].transpose(1, 2))
        for other in others:
            torch.testing.assert_close(casts.cast(other, torch.bfloat16), other.bfloat16())
        assert casts.cast(weight, torch.float16).dtype == torch.float16
    assert whole.dtype == part.dtype == torch.bfloat16
    assert casts.cast(weight, torch.bfloat16) is not whole
    with casts.once():
        assert casts.cast(weight, torch.bfloat16) is not whole


def test_what_has_the_dtype_is_not_copied(weight):
    assert casts.cast(weight, torch.float32) is weight
    assert casts.cast(weight[..., :8], torch.float32, 1)._base is weight


def test_missing_rows_and_columns_are_filled_up_with_zeros(weight):
    with casts.once():
        found = casts.cast(weight, torch.bfloat16, 8)
        assert casts.cast(weight, torch.bfloat16, 8) is found
        assert casts.cast(weight, torch.bfloat16) is not found
    assert found.shape == (3, 8, 16)
    assert torch.equal(found[:, :5, :11], weight.bfloat16())
    assert not found[:, 5:].any()
    assert not found[..., 11:].any()


def test_gradients_of_all_uses_reach_the_weight(weight):
    with casts.once():
        first, second = (casts.cast(weight[:, :, 1:4], torch.bfloat16, 8) for _ in range(2))
    (2 * first + 4 * second).sum().backward()
    wanted = torch.zeros_like(weight)
    wanted[:, :, 1:4] = 6
    assert torch.equal(weight.grad, wanted)


def test_a_cast_without_gradients_is_not_taken_for_one_with_them(weight):
    with casts.once():
        with torch.no_grad():
            blind = casts.cast(weight, torch.bfloat16)
        seeing = casts.cast(weight, torch.bfloat16)
    assert not blind.requires_grad
    assert seeing.requires_grad


def test_numbers_that_are_no_weights_are_not_kept():
    with casts.once():
        for _ in range(3):
            made = torch.randn(4, 4)
            assert torch.equal(casts.cast(made, torch.bfloat16), made.bfloat16())
        assert casts._KEPT.get() == {}
