"""The ledger: what an architecture costs, under one set of conventions. Data only, no formulas.

Conventions (design section 5): one multiply-add is 2 FLOPs. Matrix products, scores, recurrences, convolutions and
probes count; element-wise work does not. FLOPs are per token at a shape: the mean over the sequence for training and
prefill, marginal at the last position for decode. ``algorithmic`` FLOPs (the ones budgets use) count the causal half
exactly and recurrences in chunk form at a chunk of 64; ``executed`` FLOPs count what the reference path issues.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple

Phase = Literal["train", "prefill", "decode"]

CHUNK = 64
"""Tokens in one chunk of a recurrence, for algorithmic FLOPs in training and prefill."""

GATHER_UP_TO = 0.5
"""Share of a piece's queries up to which those that are read are gathered. Above it a causal piece is computed whole and
masked: its kernel skips half of the scores by itself, which gathered queries do not (measured on a CPU: they draw level between
0.5 and 0.7)."""

DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


class Shape(NamedTuple):
    """Where costs are taken.

    batch:  sequences of a batch.
    tokens: in each sequence; decode counts the last of them.
    dtype:  of weights and activations.
    phase:  ``train``, ``prefill`` or ``decode``.
    """

    batch: int = 1
    tokens: int = 1
    dtype: str = "float32"
    phase: Phase = "prefill"

    @property
    def dtype_bytes(self) -> int:
        """Of a number in ``dtype``."""
        return DTYPE_BYTES[self.dtype]

    @property
    def wide_bytes(self) -> int:
        """Of a number in the residual stream, a recurrent state or a weight being trained: float32 at least."""
        return max(4, DTYPE_BYTES[self.dtype])

    @property
    def mean_context(self) -> float:
        """Keys a causal query sees: (T+1)/2 averaged over a sequence, T for the marginal decoded token."""
        return float(self.tokens) if self.phase == "decode" else (self.tokens + 1) / 2


class Work(NamedTuple):
    """One piece of work, per token.

    forward:             algorithmic FLOPs of the forward pass; a multiply-add is 2.
    training:            the same of forward plus backward.
    executed_forward:    FLOPs that the reference path issues in a forward pass, masked work included.
    executed_training:   the same of forward plus backward.
    weights:             stored numbers that the work multiplies with, read from memory for each decoded token.
    state_traffic_bytes: state read and written for one decoded token.
    kept_bytes:          what a training pass keeps of one token for the backward pass.
    whole:               of ``executed_forward``, what prefill issues for every token of a piece once more than GATHER_UP_TO
                         of them read, because a kernel that skips by itself is faster there than gathering.
    """

    forward: float = 0.0
    training: float = 0.0
    executed_forward: float = 0.0
    executed_training: float = 0.0
    weights: float = 0.0
    state_traffic_bytes: float = 0.0
    kept_bytes: float = 0.0
    whole: float = 0.0

    @staticmethod
    def product(
        flops: float,
        executed: float | None = None,
        *,
        weights: float = 0.0,
        state_traffic_bytes: float = 0.0,
        kept_bytes: float = 0.0,
    ) -> Work:
        """A chain of matrix products: the backward pass issues two products for each forward one."""
        executed = flops if executed is None else executed
        return Work(flops, 3 * flops, executed, 3 * executed, weights, state_traffic_bytes, kept_bytes)

    def plus(self, other: Work) -> Work:
        """Both pieces of work."""
        return Work(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Work:
        """This work so many times."""
        return Work(*(a * factor for a in self))


class Cost(NamedTuple):
    """What one mixer or router costs at a shape.

    write:   work every valid token pays (keys, values, state updates, gates, probes).
    reads:   work of each reader, paid by the tokens that choose it; single mixers have one reader.
    parameters: stored weights (numbers, not bytes).
    active_parameters: of these, weights that one token uses.
    small_parameters: of the stored ones, tensors that published sizes leave out: convolutions, decays and gates of a recurrence, gains.
    state_bytes:   sequence-scoped state of ONE sequence after ``shape.tokens`` tokens, as in the real state object.
    scratch_bytes: pass-scoped state of one token in flight.
    """

    write: Work = Work()
    reads: tuple[Work, ...] = (Work(),)
    parameters: int = 0
    active_parameters: int = 0
    state_bytes: float = 0.0
    scratch_bytes: float = 0.0
    small_parameters: int = 0


class Part(NamedTuple):
    """One line of a ledger: a component at its site, and what the whole model's use of it costs (all repeats).

    rates:        share of tokens that pay its reads in decode, one number a reader.
    weight_reads: weights that one pass over a piece reads, each once a run.
    runs:         how often a pass runs it.
    state_traffic_bytes_per_token: the state's share of the decode traffic; the rest are weights, read once for a batch.
    Other fields are those of the ledger; ``small_parameters``: see ``Cost``.
    """

    site: str
    name: str
    rates: tuple[float, ...]
    parameters: int
    active_parameters: int
    weight_reads: int
    training_flops_per_token: float = 0.0
    prefill_flops_per_token: float = 0.0
    decode_flops_per_token: float = 0.0
    executed_training_flops_per_token: float = 0.0
    executed_prefill_flops_per_token: float = 0.0
    executed_decode_flops_per_token: float = 0.0
    decode_traffic_bytes_per_token: float = 0.0
    kept_bytes_per_token: float = 0.0
    state_bytes: float = 0.0
    small_parameters: int = 0
    state_traffic_bytes_per_token: float = 0.0
    runs: int = 1


Section = tuple[str, tuple[Part, ...]]
"""A site and its lines. Equal blocks share one tuple of lines, whose sites are relative to theirs."""


@dataclass(frozen=True)
class Prediction:
    """Predicted times of one cost model on one device; alone on it, in the ledger's shape and dtype.

    seconds_per_token: by phase (train, prefill, decode), at the shape's batch: seconds of a step over all its tokens.
    part_seconds_per_token: the same by site and phase, for models that predict parts.
    relative_error: by phase, the median of |predicted / measured - 1| on profiles held out of the fit; absent where no
                    measurement was seen.
    """

    model: str
    device: str
    seconds_per_token: dict[str, float]
    part_seconds_per_token: dict[str, dict[str, float]] = field(default_factory=dict)
    relative_error: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ledger:
    """The cost of a whole architecture at one shape; every field carries its unit in its name.

    Counts are numbers, ``*_bytes`` bytes, ``*_flops_per_token`` algorithmic FLOPs a token, ``executed_*`` executed ones.
    ``rates`` maps each routed site to the share of asked tokens per choice (nominal, unless ``realised``).

    training_peak_bytes: the most memory that one training step of ``batch`` x ``tokens`` holds (see ``docs/ledger.md``).
    kept_bytes_per_token: activations that autograd keeps of one token between forward and backward pass.
    decode_traffic_bytes_per_token: weights and state moved for one decoded token of one sequence.
    """

    tokens: int
    batch: int
    dtype: str
    training_flops_per_token: float
    prefill_flops_per_token: float
    decode_flops_per_token: float
    executed_training_flops_per_token: float
    executed_prefill_flops_per_token: float
    executed_decode_flops_per_token: float
    recompute_flops_per_token: float
    parameters: int
    active_parameters: int
    non_embedding_parameters: int
    weight_bytes: float
    state_bytes: float
    scratch_bytes: float
    memory_bytes: float
    training_peak_bytes: float
    kept_bytes_per_token: float
    decode_traffic_bytes_per_token: float
    rates: dict[str, tuple[float, ...]] = field(default_factory=dict)
    realised: bool = False
    sections: tuple[Section, ...] = ()
    prediction: Prediction | None = None

    @property
    def batch_state_bytes(self) -> float:
        """Decode state of all sequences of the batch."""
        return self.batch * self.state_bytes

    @property
    def parts(self) -> tuple[Part, ...]:
        """All lines, each at its own site."""
        return tuple(line._replace(site=site + line.site) for site, lines in self.sections for line in lines)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("sections", "prediction")
        }
        plain["batch_state_bytes"] = self.batch_state_bytes
        plain["parts"] = [part._asdict() for part in self.parts]
        plain["prediction"] = None if self.prediction is None else asdict(self.prediction)
        return plain

    def quantity(self, name: str) -> float:
        """The value of a budgetable quantity (see QUANTITIES)."""
        return float(getattr(self, name))


QUANTITIES: dict[str, str] = {
    "training_flops_per_token": "algorithmic FLOPs per token, forward + backward, mean over the sequence",
    "prefill_flops_per_token": "algorithmic FLOPs per token, forward, mean over the sequence",
    "decode_flops_per_token": "algorithmic FLOPs of the next token after the whole context",
    "parameters": "stored weights, tied ones once",
    "active_parameters": "weights one token uses",
    "non_embedding_parameters": "stored weights without the token embedding and an untied head",
    "state_bytes": "decode state of one sequence at the budget's length, bytes",
    "batch_state_bytes": "decode state of the budget's whole batch at its length, bytes",
    "memory_bytes": "weights plus decode state of one sequence at the budget's length, bytes",
    "training_peak_bytes": "weights, gradients, optimiser moments and kept activations of a step at the budget's batch, bytes",
}
"""Quantities a budget may match or cap, with their convention."""
