"""The loss in pieces against the whole, its gradients and its memory; the kernel against torch."""

import pytest
import torch
import torch.nn.functional as F

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.cross_entropy import linear_cross_entropy, token_cross_entropy
from tests.core.ops.heads import LargestTensor, inputs


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


@pytest.mark.gpu
@pytest.mark.parametrize("V", [2, 17, 4096, 4097, 32001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_gives_losses_and_gradients_of_float64(V, dtype):
    h, weight, labels = (x.cuda() for x in inputs(65, V, 24, dtype))
    h.requires_grad_(), weight.requires_grad_()
    loss, count, correct = linear_cross_entropy(h, weight, labels, piece=32)
    loss.backward()
    wide = [x.detach().double().requires_grad_() for x in (h, weight)]
    wanted, wanted_count, _ = linear_cross_entropy(*wide, labels, piece=32)
    wanted.backward()
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-3
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wanted.item(), rel=tolerance)
    assert count == wanted_count
    for got, right in ((h.grad, wide[0].grad), (weight.grad, wide[1].grad)):
        assert (got.double() - right).norm() <= 2 * tolerance * right.norm()
    # Which logit is the greatest is a question to the logits as they were.
    logits = torch.mm(h.detach(), weight.detach().mT)
    assert correct == (logits.argmax(-1) == labels).sum()


@pytest.mark.gpu
def test_the_first_of_equal_logits_is_the_greatest_to_the_kernel():
    from crossbreed.core.ops.kernels.softmax_loss import softmax_loss_

    logits = torch.zeros(3, 5000, device="cuda")
    logits[2, 4999] = 1.0
    nats, right = softmax_loss_(logits, torch.tensor([0, 1, 4999], device="cuda"), gradient=True)
    assert right.tolist() == [True, False, True]
    torch.testing.assert_close(nats[0].item(), float(torch.tensor(5000.0).log()))
    torch.testing.assert_close(logits.sum(-1).cpu(), torch.zeros(3), atol=1e-4, rtol=0)
