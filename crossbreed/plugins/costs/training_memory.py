"""What a training step holds in memory: the model behind ``training_peak_bytes``.

The lab trains with AdamW on float32 weights, in float32 or under bfloat16 autocast, and never recomputes. A step's peak is

    weights + two moments + max(start of the backward pass, end of it),
    start: kept activations of all tokens, cast copies of the weights (counted for each run, though runs share them), the output head's gradient,
           and, whichever is more, that gradient once more or what the loss holds of a piece of the logits,
    end:   all gradients, and the embedding's once more while it is added.

Between the two, activations go as gradients come. What a mixer needs for a moment inside its own backward pass is left out.
"""

from __future__ import annotations

from crossbreed.core.genome import Block
from crossbreed.core.ledger import Shape
from crossbreed.plugins.costs.bill import Bill, norm_kept

MOMENTS = 2
"""Numbers that AdamW keeps of each weight."""

LOGITS, ROWS = 1 << 22, 2048
"""Logits that the loss holds at a time, and of how many rows at least (``core.ops.cross_entropy``)."""


def training_peak(bill: Bill, vocab: int, d_model: int, shape: Shape) -> float:
    """Bytes at the peak of one step over ``shape.batch`` x ``shape.tokens``."""
    wide, narrow = shape.wide_bytes, shape.dtype_bytes
    weights = bill.parameters * wide
    tokens = shape.batch * shape.tokens
    copies = bill.cast_weights * narrow if narrow < wide else 0
    head = vocab * d_model * wide
    start = tokens * bill.kept_bytes + copies + head + max(head, logits_held(tokens, vocab, shape))
    end = float(weights + head)
    return weights * (1 + MOMENTS) + max(start, end)


def logits_held(tokens: int, vocab: int, shape: Shape) -> float:
    """Bytes that the loss holds of the logits: one piece, which its gradient replaces."""
    return float(min(tokens * vocab, max(LOGITS, ROWS * vocab)) * shape.dtype_bytes)


def block_kept(block: Block, output_norms: bool, soft: bool, d_model: int, shape: Shape) -> float:
    """Bytes a block keeps of one token beside its mixers: inputs of its norms, and outputs that a scale or weight multiplies.

    Sublayers in parallel share one input.
    """
    count = len(block.sublayers)
    one = norm_kept(d_model, shape)
    kept = 0
    if block.norm != "none":
        kept += count * one if block.arrangement == "sequential" else one + (count - 1) * shape.wide_bytes
    if output_norms:
        kept += count * one
    kept += ((block.output_scale is not None) + soft) * count * d_model * shape.dtype_bytes
    return float(kept)
