"""Counting helpers for the costs of mixers and readers: the ledger's conventions as small functions. No torch."""

from __future__ import annotations

from crossbreed.core.ledger import CHUNK, Shape

QUERIES = 512
"""Queries of a block of windowed attention, or as many as the window is wide."""


def window_block(window: int) -> int:
    """Queries of a block: each block is computed over the keys that its window reaches, so that nothing grows with T x T."""
    return max(window, QUERIES)


def keys_issued(tokens: int, window: int | None) -> float:
    """Keys that a query of a piece is computed with, hidden ones included: the mean over its blocks, all keys without a window."""
    if window is None or tokens <= (size := window_block(window)):
        return float(tokens)
    whole, rest = divmod(tokens, size)
    reached = whole * size * size + (whole - 1) * size * (window - 1)
    return (reached + (rest * (rest + window - 1))) / tokens


def mean_visible(shape: Shape, window: int | None = None) -> float:
    """Keys a causal query sees: the mean over the sequence, or at the last token in decode; capped by a window."""
    T = shape.tokens
    if window is None or window >= T:
        return shape.mean_context
    if shape.phase == "decode":
        return float(window)
    return (window * (window + 1) / 2 + (T - window) * window) / T


def mean_in_chunk(tokens: int, chunk: int = CHUNK) -> float:
    """Positions of its own chunk that a token sees, itself included: mean over a sequence cut into chunks."""
    whole, rest = divmod(tokens, chunk)
    return (whole * chunk * (chunk + 1) + rest * (rest + 1)) / 2 / tokens


def chunk_issued(tokens: int, chunk: int) -> tuple[int, float]:
    """(chunk the reference path uses, padded tokens per token); see ``core.ops.chunks.chunk_for``.

    One token takes the step path, which pads nothing.
    """
    if tokens == 1:
        return 1, 1.0
    size = min(chunk, max(16, 1 << (tokens - 1).bit_length()))
    return size, -(-tokens // size) * size / tokens


def input_kept(width: int, products: int, shape: Shape) -> float:
    """Bytes kept of one token's input by that many products: one tensor for all, or a cast copy for each."""
    narrow = shape.dtype_bytes
    return float(width * narrow * (1 if narrow == shape.wide_bytes else products))
