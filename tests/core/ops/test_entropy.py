"""Entropy of the output head in pieces against the whole, and its memory."""

import math

import pytest
import torch

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.entropy import measured_output, normalised_entropy
from tests.core.ops.heads import LargestTensor, inputs


@pytest.mark.parametrize("piece", [1, 4, 11, 100, None])
def test_entropy_in_pieces_is_the_entropy_of_the_softmax(piece):
    h, weight, _ = inputs(22, 13, 5)
    p = (h @ weight.mT).softmax(-1)
    wanted = -(p * (p + 1e-10).log()).sum(-1) / math.log(13)
    torch.testing.assert_close(normalised_entropy(h.view(2, 11, 5), weight, piece=piece), wanted.view(2, 11))


def test_entropy_spans_zero_to_one_exactly():
    flat = normalised_entropy(torch.zeros(1, 1, 3), torch.randn(7, 3))
    sharp = normalised_entropy(torch.full((1, 1, 1), 1e4), torch.arange(7.0).unsqueeze(1))
    assert flat.item() == pytest.approx(1.0, abs=1e-6)
    assert flat.item() <= 1.0
    assert sharp.item() == 0.0


def test_entropy_is_fp32_and_carries_no_gradient():
    h, weight, _ = inputs(6, 13, 5, torch.bfloat16)
    entropy = normalised_entropy(h.view(2, 3, 5).requires_grad_(), weight.requires_grad_())
    assert entropy.dtype == torch.float32
    assert not entropy.requires_grad
    wide = normalised_entropy(h.view(2, 3, 5).double(), weight.double())
    torch.testing.assert_close(entropy.double(), wide, rtol=2e-2, atol=2e-2)


def test_the_logits_are_never_held_whole():
    h, weight, _ = inputs(64, 100, 8, torch.float32)
    with LargestTensor() as largest:
        normalised_entropy(h.view(4, 16, 8), weight, piece=4)
    assert largest.elements == weight.numel()  # as it is; the logits would be 6400


def test_any_measure_of_the_logits_is_taken_in_pieces_without_gradient():
    h, weight, _ = inputs(12, 9, 5)
    h.requires_grad_()
    asked: list[int] = []

    def greatest(logits_nV):
        asked.append(len(logits_nV))
        return logits_nV.max(-1).values

    found = measured_output(h.view(3, 4, 5), weight, greatest, piece=5)
    assert torch.equal(found, (h.detach() @ weight.mT).max(-1).values.view(3, 4))
    assert asked == [5, 5, 2]
    assert not found.requires_grad
    narrow = measured_output(h.bfloat16()[None], weight.bfloat16(), greatest)
    assert narrow.dtype == torch.float32


def test_bad_input_is_named():
    h, weight, _ = inputs(5, 4, 3)
    with pytest.raises(ConfigError, match="piece is 0"):
        normalised_entropy(h[None], weight, piece=0)
    with pytest.raises(ConfigError, match="vocabulary of at least 2"):
        normalised_entropy(h[None], weight[:1])
