"""What printed costs mean, in one place: under tables, and as ``conventions`` of every ``--json`` object that holds a cost."""

from __future__ import annotations

from crossbreed.core.ledger import CHUNK

CONVENTIONS = (
    "One multiply-add is 2 FLOPs; matrix products, scores, recurrences, convolutions and probes count. Algorithmic FLOPs "
    f"take the causal half exactly and recurrences in chunks of {CHUNK}; executed FLOPs are what the reference path issues. "
    "Training is forward plus backward. Training and prefill are the mean over the sequence, decode is the next token after "
    "the whole context. Rates are nominal unless given: conditional work is charged at its share of tokens where it skips time."
)
MEMORY = (
    "Parameters: tied ones once. State: of one sequence after the last token. Training peak: float32 weights and two moments, "
    "and the larger of kept activations with the head's gradient or of all gradients; no recomputation. Traffic: weights "
    "used, once a run, and state moved for one decoded token of one sequence."
)
MATCHED = (
    "FLOPs are algorithmic and per token, a multiply-add is 2: training forward plus backward, training and prefill the mean "
    "over the sequence, decode the next token after the whole context. State and memory are of one sequence, batch_state_bytes "
    "and training_peak_bytes of the batch. A residual is value / reference - 1."
)
