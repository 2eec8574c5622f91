"""Entropy and cross-entropy in pieces against the whole, and their memory."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.entropy import (
    linear_cross_entropy,
    measured_output,
    normalised_entropy,
    token_cross_entropy,
)


class LargestTensor(TorchDispatchMode):
    """Remembers how many elements the largest tensor had that any operation returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result


def inputs(N, V, D, dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    h, weight = (torch.randn(*shape, generator=random, dtype=torch.float64) for shape in ((N, D), (V, D)))
    labels = torch.randint(V, (N,), generator=random)
    labels[::3] = -100
    return h.to(dtype), weight.to(dtype), labels


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


@pytest.mark.parametrize("piece", [1, 4, 22, None])
def test_loss_counts_and_gradients_equal_torchs(piece):
    h, weight, labels = inputs(22, 13, 5)
    h.requires_grad_(), weight.requires_grad_()
    loss, count, correct = linear_cross_entropy(h, weight, labels, piece=piece)
    got = torch.autograd.grad(loss / count, (h, weight))
    logits = h @ weight.mT
    wanted = F.cross_entropy(logits, labels)
    torch.testing.assert_close(loss / count, wanted)
    torch.testing.assert_close(got, torch.autograd.grad(wanted, (h, weight)))
    assert count.item() == (labels != -100).sum()
    assert correct.item() == (logits.argmax(-1) == labels).sum()


def test_numerical_gradients_agree():
    h, weight, labels = inputs(5, 4, 3)
    leaves = (h.requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(lambda h, w: 3.0 * linear_cross_entropy(h, w, labels, piece=2)[0], leaves)


def test_only_wanted_gradients_are_computed():
    h, weight, labels = inputs(22, 13, 5)
    frozen, _, _ = linear_cross_entropy(h, weight, labels)
    assert not frozen.requires_grad
    loss, _, _ = linear_cross_entropy(h.requires_grad_(), weight, labels)
    loss.backward()
    torch.testing.assert_close(
        h.grad, torch.autograd.grad(F.cross_entropy(h @ weight.mT, labels, reduction="sum"), h)[0]
    )


def test_nothing_scored_is_zero_without_nan():
    h, weight, labels = inputs(5, 4, 3)
    loss, count, correct = linear_cross_entropy(h.requires_grad_(), weight, torch.full_like(labels, -100))
    loss.backward()
    assert (loss.item(), count.item(), correct.item()) == (0.0, 0, 0)
    assert not h.grad.any()


def test_another_ignored_index_is_honoured():
    h, weight, labels = inputs(22, 13, 5)
    loss, count, _ = linear_cross_entropy(h, weight, labels.clamp(min=0), ignore_index=0)
    torch.testing.assert_close(
        loss / count, F.cross_entropy(h @ weight.mT, labels.clamp(min=0), ignore_index=0)
    )


def test_the_logits_are_never_held_whole():
    h, weight, labels = inputs(64, 100, 8, torch.float32)
    h.requires_grad_(), weight.requires_grad_()
    with LargestTensor() as largest:
        loss, _, _ = linear_cross_entropy(h, weight, labels, piece=4)
        loss.backward()
        normalised_entropy(h.view(4, 16, 8), weight, piece=4)
    assert largest.elements == weight.numel()  # its gradient; the logits would be 6400
    with LargestTensor() as largest:
        linear_cross_entropy(h, weight, labels, piece=64)
    assert largest.elements == 6400


@pytest.mark.parametrize("piece", [1, 4, 22, None])
def test_losses_token_by_token_are_those_of_the_sum_without_gradient(piece):
    h, weight, labels = inputs(22, 13, 5)
    nats, right = token_cross_entropy(h.requires_grad_(), weight, labels, piece=piece)
    logits = h.detach() @ weight.mT
    torch.testing.assert_close(nats, F.cross_entropy(logits, labels, reduction="none"))
    assert torch.equal(right, logits.argmax(-1) == labels)
    assert not nats.requires_grad
    loss, _, correct = linear_cross_entropy(h, weight, labels)
    torch.testing.assert_close(nats.sum(), loss.detach())
    assert right.sum() == correct
    with LargestTensor() as largest:
        token_cross_entropy(h, weight, labels, piece=2)
    assert largest.elements == weight.numel()  # as it is; all logits would be 286


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


def test_bf16_losses_are_summed_in_fp32():
    h, weight, labels = inputs(400, 13, 5, torch.bfloat16)
    h.requires_grad_(), weight.requires_grad_()
    loss, _, _ = linear_cross_entropy(h, weight, labels, piece=16)
    loss.backward()
    wide = [x.detach().double().requires_grad_() for x in (h, weight)]
    wanted, _, _ = linear_cross_entropy(*wide, labels)
    wanted.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), wanted, rtol=2e-3, atol=0.0)
    torch.testing.assert_close(weight.grad.double(), wide[1].grad, rtol=2e-2, atol=0.1)


def test_bad_input_is_named():
    h, weight, labels = inputs(5, 4, 3)
    with pytest.raises(ConfigError, match="piece is 0"):
        linear_cross_entropy(h, weight, labels, piece=0)
    with pytest.raises(ConfigError, match="5 rows need one each"):
        linear_cross_entropy(h, weight, labels[:4])
    with pytest.raises(ConfigError, match="5 rows need one each"):
        token_cross_entropy(h, weight, labels[:4])
    with pytest.raises(ConfigError, match="vocabulary of at least 2"):
        normalised_entropy(h[None], weight[:1])
