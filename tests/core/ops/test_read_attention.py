"""Attention of the tokens that read: how they are packed, and its kernels against float64."""

import pytest
import torch

from crossbreed.core.ops.attention import attention, attention_reference
from crossbreed.core.ops.read_attention import packed, read_attention, skippable


def reading(B: int, T: int, kind: str) -> torch.Tensor:
    random = torch.Generator().manual_seed(1)
    if kind == "segments":
        return (torch.rand(B, T // 32 + 1, generator=random) < 0.4).repeat_interleave(32, 1)[:, :T]
    if kind == "one":
        return torch.arange(T).expand(B, T) == T // 2
    share = {"none": 0.0, "all": 1.0}.get(kind, 0.3)
    return torch.rand(B, T, generator=random) < share


def inputs(B, T, H, G, K, V, dtype, device):
    random = torch.Generator().manual_seed(0)
    shapes = ((B, T, H, K), (B, T, G, K), (B, T, G, V))
    return [torch.randn(*shape, generator=random).to(device, dtype) for shape in shapes]


def both(read, *tensors):
    """(output and gradients of the kernels, the same of the reference in float64) for one random gradient."""
    own = [t.detach().requires_grad_() for t in tensors]
    wide = [t.detach().double().requires_grad_() for t in tensors]
    o, wanted = read_attention(*own, read), attention_reference(*wide) * read[..., None, None]
    grad = torch.randn_like(o)
    o.backward(grad)
    wanted.backward(grad.double())
    return [o, *(t.grad for t in own)], [wanted, *(t.grad for t in wide)]


@pytest.mark.parametrize("kind", ["some", "segments", "one", "none", "all"])
def test_tokens_that_read_come_first_and_in_their_order(kind):
    read = reading(3, 70, kind)
    order, count, before = packed(read)
    for row in range(3):
        wanted = [t for t in range(70) if read[row, t]] + [t for t in range(70) if not read[row, t]]
        assert order[row].tolist() == wanted
        assert count[row] == read[row].sum()
        assert before[row].tolist() == [int(read[row, :t].sum()) for t in range(70)]


def test_the_reference_computes_all_and_clears_what_does_not_read():
    q, k, v = inputs(2, 21, 4, 2, 6, 5, torch.float64, "cpu")
    read = reading(2, 21, "some")
    assert not skippable(q, v)
    y = attention(q, k, v, read_BT=read)
    torch.testing.assert_close(y, attention_reference(q, k, v) * read[..., None, None])
    some = torch.ones(2, 21, 21, dtype=torch.bool).tril(-1)
    wanted = attention_reference(q, k, v, visible_BTS=some) * read[..., None, None]
    torch.testing.assert_close(attention(q, k, v, visible_BTS=some, read_BT=read), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["some", "segments", "one", "none", "all"])
@pytest.mark.parametrize(
    ("B", "T", "H", "G", "K", "V", "dtype"),
    [
        (2, 384, 2, 2, 128, 128, torch.bfloat16),
        (3, 257, 4, 2, 64, 64, torch.bfloat16),
        (1, 300, 2, 1, 256, 256, torch.bfloat16),
        (2, 130, 4, 1, 24, 40, torch.float16),
    ],
)
def test_the_kernels_give_what_float64_gives(B, T, H, G, K, V, dtype, kind):
    read = reading(B, T, kind).cuda()
    for mine, its in zip(*both(read, *inputs(B, T, H, G, K, V, dtype, "cuda")), strict=True):
        assert mine.dtype == dtype
        assert (mine.double() - its).norm() <= (1e-2 if dtype == torch.bfloat16 else 2e-3) * its.norm() + 1e-9


@pytest.mark.gpu
def test_the_kernels_read_tensors_as_they_lie():
    B, T, H, K = 2, 200, 3, 64
    qkv = torch.randn(B, T, 3 * H * K, device="cuda", dtype=torch.bfloat16)
    q, k, v = (part.view(B, T, H, K) for part in qkv.chunk(3, -1))
    read = reading(B, T, "some").cuda()
    torch.testing.assert_close(
        read_attention(q, k, v, read),
        read_attention(q.contiguous(), k.contiguous(), v.contiguous(), read),
        rtol=0,
        atol=0,
    )


@pytest.mark.gpu
def test_one_recorded_launch_serves_every_choice():
    tensors = [t.requires_grad_() for t in inputs(2, 300, 2, 2, 64, 64, torch.bfloat16, "cuda")]
    read = reading(2, 300, "some").cuda()
    grad = torch.randn(2, 300, 2, 64, device="cuda", dtype=torch.bfloat16)

    def run():
        o = read_attention(*tensors, read)
        return [o, *torch.autograd.grad(o, tensors, grad)]

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = run()
    for kind in ("segments", "one", "none", "all"):
        read.copy_(reading(2, 300, kind))
        graph.replay()
        for again, own in zip(recorded, run(), strict=True):
            torch.testing.assert_close(again, own, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["sdpa", "flash_attn"])
def test_fused_attention_leaves_unread_queries_to_these_kernels(kernel, monkeypatch):
    from crossbreed.core.ops import attention as module

    calls = []
    real = module.read_attention
    monkeypatch.setattr(module, "read_attention", lambda *a: calls.append(1) or real(*a))
    tensors = inputs(2, 96, 2, 2, 64, 64, torch.bfloat16, "cuda")
    read = reading(2, 96, "some").cuda()
    module.attention(*tensors, read_BT=read, kernel=kernel)
    module.attention(*tensors, read_BT=read, kernel="reference")
    module.attention(*tensors, kernel="sdpa")
    assert len(calls) == 1
