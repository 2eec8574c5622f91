"""Cutting T into chunks, and the decays between positions of a chunk: what the chunked recurrences share.

Chunked tensors are laid out `(N, M, C, ...)`: N chunks, M = batch x heads, C positions of a chunk. Chunks come
first, so that the scan over chunks reads contiguous slices and everything else is one batched product.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from crossbreed.core.errors import ConfigError

SMALLEST_CHUNK = 16
SMALLEST_LOG_DECAY = {torch.float32: -80.0, torch.float64: -700.0}
"""Decays between positions stop shrinking here. Below, a CPU's exp and products of denormals are ten times slower."""


def check_chunk(chunk: int) -> None:
    """Raise `ConfigError` unless `chunk` is a power of two of at least 16."""
    if chunk < SMALLEST_CHUNK or chunk & (chunk - 1):
        raise ConfigError(f"chunk is {chunk}; it must be a power of two of at least {SMALLEST_CHUNK}.")


def chunk_for(tokens: int, chunk: int) -> int:
    """The chunk to use for a piece: no longer than the power of two that covers it."""
    return min(chunk, max(SMALLEST_CHUNK, 1 << (tokens - 1).bit_length()))


def compute_dtype(x: Tensor) -> torch.dtype:
    """float64 stays float64; everything else computes in fp32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def product_dtype(x: Tensor) -> torch.dtype:
    """What matrix products of ``x`` are computed in here: its own dtype, or autocast's, which leaves float64 alone."""
    kind = x.device.type
    if x.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype


def chunk_view(x_BTHK: Tensor, chunk: int) -> Tensor:
    """`(B, T, H, K)` seen as `(N, B, H, C, K)`, zeros after the end."""
    B, T, H, K = x_BTHK.shape
    chunks = -(-T // chunk)
    missing = chunks * chunk - T
    if missing:
        x_BTHK = torch.nn.functional.pad(x_BTHK, (0, 0, 0, 0, 0, missing))
    return x_BTHK.reshape(B, chunks, chunk, H, K).permute(1, 0, 3, 2, 4)


def to_chunks(x_BTHK: Tensor, chunk: int, dtype: torch.dtype) -> Tensor:
    """`(B, T, H, K)` to contiguous `(N, B*H, C, K)`, zeros after the end."""
    view = chunk_view(x_BTHK, chunk)
    return view.to(dtype, memory_format=torch.contiguous_format).flatten(1, 2)


def from_chunks(x_NMCK: Tensor, batch: int, tokens: int) -> Tensor:
    """The inverse of `to_chunks`: `(N, B*H, C, K)` to contiguous `(B, T, H, K)`."""
    N, M, C, K = x_NMCK.shape
    x = x_NMCK.reshape(N, batch, M // batch, C, K).permute(1, 0, 3, 2, 4)
    return x.reshape(batch, N * C, M // batch, K)[:, :tokens].contiguous()


@dataclass(frozen=True)
class Decays:
    """Decays inside each chunk; all zero across the start of a document.

    Attributes:
        pair_NMCC: from after position j (column) to position i (row), lower triangle with ones on the diagonal.
        head_NMC: from the state before the chunk to position i, inclusive.
        tail_NMC: from after position j to the end of the chunk.
        whole_NM: over the whole chunk.
    """

    pair_NMCC: Tensor
    head_NMC: Tensor
    tail_NMC: Tensor
    whole_NM: Tensor


def chunk_decays(log_decay_BTH: Tensor, reset_BT: Tensor | None, chunk: int, dtype: torch.dtype) -> Decays:
    """Decays of a chunk from log-decays; without a graph, for use inside an autograd function.

    Cumulative sums run in float64 and are differenced there: with fp32 sums a single gate of -80 would cost the
    later, slow decays four digits. Only the lower triangle is a decay; the upper one is cleared.
    """
    log_NMC = to_chunks(log_decay_BTH.unsqueeze(-1), chunk, torch.float64).squeeze(-1)
    total_NMC = log_NMC.cumsum(-1)
    pair_NMCC = (total_NMC.unsqueeze(-1) - total_NMC.unsqueeze(-2)).to(dtype)
    pair_NMCC.clamp_(SMALLEST_LOG_DECAY[dtype], 0.0).exp_().tril_()
    head_NMC = total_NMC.exp().to(dtype)
    tail_NMC = (total_NMC[..., -1:] - total_NMC).exp_().to(dtype)
    whole_NM = head_NMC[..., -1]
    if reset_BT is not None:
        H = log_decay_BTH.shape[2]
        reset_BTH1 = reset_BT[:, :, None, None].expand(-1, -1, H, 1)
        document_NMC = to_chunks(reset_BTH1, chunk, torch.int32).squeeze(-1).cumsum(-1)
        pair_NMCC.mul_(document_NMC.unsqueeze(-1) == document_NMC.unsqueeze(-2))
        head_NMC.mul_(document_NMC == 0)
        tail_NMC.mul_(document_NMC == document_NMC[..., -1:])
        whole_NM = head_NMC[..., -1]
    return Decays(pair_NMCC, head_NMC, tail_NMC, whole_NM)


def log_decay_gradient(reads_NMC: Tensor, writes_NMC: Tensor, tail_NMC: Tensor, whole_NM: Tensor) -> Tensor:
    """Gradient of the log-decays `(N, M, C)` from gradients of the logs of the decays of `Decays`.

    The log of a decay is a difference of cumulative sums c: pair c_i - c_j, head c_i, tail c_C - c_j, whole c_C.
    A position's decay to itself is no decay: its gradient would cancel up to rounding only, and that noise would
    be all the gradient that a closed gate ever sees.

    Args:
        reads_NMC: sums over each row of the pair gradients, without the diagonal, plus the head gradients.
        writes_NMC: sums over each column of the pair gradients, without the diagonal.
        tail_NMC: the tail gradients. The last one is cleared: it is a decay to itself.
        whole_NM: the whole gradients.
    """
    tail_NMC[..., -1] = 0.0
    total_NMC = reads_NMC - writes_NMC - tail_NMC
    total_NMC[..., -1] += tail_NMC.sum(-1) + whole_NM
    return total_NMC.flip(-1).cumsum(-1).flip(-1)


def silence(valid_BT: Tensor | None, reset_BT: Tensor | None) -> Tensor | None:
    """Resets that count: an invalid token starts nothing."""
    if valid_BT is None or reset_BT is None:
        return reset_BT
    return reset_BT & valid_BT
