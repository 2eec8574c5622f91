"""Training memory: activations against what autograd really holds, and the peak against its stated model."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.conformance.kept_memory import kept_memory
from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.plugins.mixers import accounting
from tests.support.genomes import ATTENTION, GENOMES, SWIGLU, architecture, block

B, T = 3, 64
TOLERANCE = {"float32": 0.06, "bfloat16": 0.09}
"""These models are so narrow (D 16) that indices and single numbers, which the ledger leaves out, show."""


def estimate(registry: Registry, genome: Architecture, shape: Shape) -> Ledger:
    model = registry.factory("cost", "analytic")(registry.config("cost", "analytic", {}), registry)
    return model.estimate(registry.canonical(genome), shape)  # type: ignore[no-any-return]


def held(registry: Registry, genome: Architecture, dtype: str) -> int:
    """Bytes that one training pass holds for its backward pass."""
    model = LanguageModel(genome, registry).train()
    tokens_BT = torch.randint(genome.vocab, (B, T))
    context = model.context(tokens_BT, phase="train", labels_BT=tokens_BT)
    with (
        kept_memory(model) as kept,
        torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"),
    ):
        model.loss(Batch(tokens_BT, tokens_BT), context)
    return kept.bytes


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", GENOMES)
def test_kept_bytes_are_those_that_autograd_holds(registry: Registry, name: str, dtype: str) -> None:
    genome = GENOMES[name]
    ledger = estimate(registry, genome, Shape(B, T, dtype))
    # Beside activations the graph holds the head's gradient and, under autocast, cast copies of the weights.
    inner = sum(part.weight_reads for part in ledger.parts if part.site not in ("embedding", "head"))
    constant = genome.vocab * genome.d_model * 4 + (2 * inner if dtype == "bfloat16" else 0)
    predicted = ledger.kept_bytes_per_token * B * T + constant
    assert predicted == pytest.approx(held(registry, genome, dtype), rel=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_blocks_of_a_window_keep_masks_of_what_they_reach(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(accounting, "QUERIES", 12)
    # Heads that no other test has: costs of parts are kept.
    params = {"heads": 3, "head_size": 14, "window": 7}
    genome = architecture({"blocks": [block({"mixer": "attention", "params": params})]})
    ledger = estimate(registry, genome, Shape(B, T, dtype))
    inner = sum(part.weight_reads for part in ledger.parts if part.site not in ("embedding", "head"))
    constant = genome.vocab * genome.d_model * 4 + (2 * inner if dtype == "bfloat16" else 0)
    predicted = ledger.kept_bytes_per_token * B * T + constant
    assert predicted == pytest.approx(held(registry, genome, dtype), rel=TOLERANCE[dtype])


def test_a_transformer_keeps_what_can_be_counted_by_hand(registry: Registry) -> None:
    """One layer without a convolution, D 16, 2 heads of 12, SwiGLU of 20, float32: numbers kept of one token."""
    attention = {"mixer": "attention", "params": {"heads": 2, "head_size": 12}}
    genome = architecture({"blocks": [block(attention), block(SWIGLU)]})
    ledger = estimate(registry, genome, Shape(B, T))
    D, inner, F = 16, 24, 20
    norms = 3 * (D + 1)
    angles = 2 * 12
    keys_beside_values, attended, sizes = inner, 4 * inner, 2
    swiglu = D + 2 * F + F + F
    gradient = D
    numbers = norms + D + angles + keys_beside_values + attended + sizes + swiglu + gradient
    assert ledger.kept_bytes_per_token == 4 * numbers + 8


def test_the_peak_is_weights_moments_and_the_larger_end_of_the_backward_pass(registry: Registry) -> None:
    genome = architecture({"blocks": [block(ATTENTION), block(SWIGLU)]})
    one = estimate(registry, genome, Shape(1, T))
    embedding = genome.vocab * genome.d_model
    # The loss works on all logits of so few tokens at once; the head's gradient is there meanwhile.
    logits = 4 * genome.vocab
    start = T * one.kept_bytes_per_token + 4 * embedding + max(4 * embedding, T * logits)
    assert one.training_peak_bytes == 12 * one.parameters + max(start, 4 * (one.parameters + embedding))
    few = estimate(registry, genome, Shape(1, 1))
    assert few.training_peak_bytes == 16 * few.parameters + 4 * embedding
    many = estimate(registry, genome, Shape(64, T))
    assert many.training_peak_bytes - 12 * many.parameters == pytest.approx(
        64 * T * (one.kept_bytes_per_token + logits) + 4 * embedding
    )


def test_of_many_tokens_one_piece_of_the_logits_is_held_in_their_own_precision(registry: Registry) -> None:
    genome = architecture({"blocks": [block(ATTENTION), block(SWIGLU)]}).model_copy(update={"vocab": 50_000})
    tokens, rows = 8192, 2048
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        found = estimate(registry, genome, Shape(1, tokens, dtype))
        head = 4 * genome.vocab * genome.d_model
        held = found.training_peak_bytes - 12 * found.parameters - tokens * found.kept_bytes_per_token
        copies = 2 * sum(part.weight_reads for part in found.parts if part.site != "embedding")
        assert held - (copies if dtype == "bfloat16" else 0) == pytest.approx(
            size * rows * genome.vocab + head, rel=0.01
        )


@pytest.mark.parametrize("name", GENOMES)
def test_bfloat16_copies_weights_but_halves_most_activations(registry: Registry, name: str) -> None:
    wide, narrow = (estimate(registry, GENOMES[name], Shape(B, T, d)) for d in ("float32", "bfloat16"))
    assert 0.5 < narrow.kept_bytes_per_token / wide.kept_bytes_per_token < 1
    # Gradients and moments stay in float32 whatever the activations are.
    assert narrow.training_peak_bytes > 12 * narrow.parameters
