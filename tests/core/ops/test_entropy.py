"""Entropy of the output head in pieces against the whole, and its memory; the kernel against float64."""

import math

import pytest
import torch

from crossbreed.core.conformance.flop_count import count_flops
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


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_the_definitions_small_number_changes_the_sum_by_itself_for_each_class_at_most(scale):
    h, weight, _ = inputs(6, 501, 5)
    h *= scale
    p = (h @ weight.mT).softmax(-1)
    without = -torch.xlogy(p, p).sum(-1) / math.log(501)
    off = without - normalised_entropy(h[None], weight)[0]
    assert off.min() >= -1e-12
    assert off.max() <= 501e-10 / math.log(501)


def on_device(N, V, D, dtype):
    h, weight, _ = inputs(N, V, D, dtype)
    # Logits of a few nats, at any width.
    return h.cuda()[None], (2 * weight / D**0.5).cuda()


@pytest.mark.gpu
@pytest.mark.parametrize("N", [1, 16, 17, 63, 65, 300])
@pytest.mark.parametrize(("V", "D"), [(2, 48), (17, 100), (32001, 96), (128256, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_gives_the_entropy_of_float64(N, V, D, dtype):
    h, weight = on_device(N, V, D, dtype)
    got = normalised_entropy(h, weight)
    wanted = normalised_entropy(h.double(), weight.double(), piece=min(N, 50))
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), wanted, rtol=0.0, atol=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("N", [2, 200])
def test_the_kernel_spans_zero_to_one_keeps_nan_and_minds_no_offset(N):
    flat = normalised_entropy(torch.zeros(1, N, 24, device="cuda"), torch.randn(4097, 24, device="cuda"))
    assert flat.min() > 1 - 1e-6
    assert flat.max() <= 1.0
    steep = 1e4 * torch.arange(4097.0, device="cuda").unsqueeze(1)
    assert not normalised_entropy(torch.ones(1, N, 1, device="cuda"), steep).any()
    lost = torch.zeros(1, N, 24, device="cuda")
    lost[0, 1] = math.nan
    found = normalised_entropy(lost, torch.randn(4097, 24, device="cuda"))
    assert found.isnan().tolist() == lost.isnan().any(-1).tolist()
    h, weight = on_device(N, 4097, 24, torch.float32)
    weight[:, -1] = 1.0
    h[..., -1] = 0.0
    plain = normalised_entropy(h, weight)
    h[..., -1] = 1000.0
    torch.testing.assert_close(normalised_entropy(h, weight), plain, rtol=0.0, atol=5e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("N", [1, 40, 300])
def test_a_recorded_kernel_reads_what_its_inputs_hold_at_each_replay(N):
    h, weight = on_device(N, 32001, 96, torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        normalised_entropy(h, weight)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            entropy = normalised_entropy(h, weight)
        other = torch.flip(h, (-1,))
        wanted = normalised_entropy(other, weight)
        h.copy_(other)
    graph.replay()
    assert torch.equal(entropy, wanted)


@pytest.mark.gpu
def test_the_kernel_computes_in_the_precision_of_products_here():
    h, weight = on_device(70, 513, 64, torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        narrow = normalised_entropy(h, weight)
    assert torch.equal(narrow, normalised_entropy(h.bfloat16(), weight.bfloat16()))
    assert not torch.equal(narrow, normalised_entropy(h, weight))


@pytest.mark.gpu
def test_the_kernel_holds_a_small_part_of_the_logits():
    h, weight = on_device(4096, 50257, 64, torch.bfloat16)
    normalised_entropy(h, weight)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    normalised_entropy(h, weight)
    assert torch.cuda.max_memory_allocated() - before < 4096 * 50257 / 100


@pytest.mark.gpu
def test_the_kernels_products_are_counted():
    h, weight = on_device(5, 17, 48, torch.bfloat16)
    assert count_flops(lambda: normalised_entropy(h, weight)) == 2 * 5 * 17 * 48


@pytest.mark.gpu
def test_the_kernel_reads_no_head_of_another_width():
    h, weight = on_device(5, 17, 48, torch.bfloat16)
    with pytest.raises(ConfigError, match="reads 47 channels; hidden states have 48"):
        normalised_entropy(h, weight[:, :47])
