"""The analytic ledger against models that were really built, and against a Transformer counted by hand."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.genome import Architecture, Block, Stage, Sublayer
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import GENOMES


def estimate(registry: Registry, architecture: Architecture, tokens: int) -> Ledger:
    model = registry.factory("cost", "analytic")(registry.config("cost", "analytic", {}), registry)
    return model.estimate(registry.canonical(architecture), Shape(1, tokens, "float32"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", GENOMES)
def test_parameters_are_those_of_the_built_model(registry: Registry, name: str) -> None:
    model = LanguageModel(GENOMES[name], registry)
    ledger = estimate(registry, GENOMES[name], 16)
    assert ledger.parameters == sum(p.numel() for p in model.parameters())
    outside = {id(model.embedding.weight), id(model.output_weight_VD)}
    assert ledger.non_embedding_parameters == sum(
        p.numel() for p in model.parameters() if id(p) not in outside
    )


@pytest.mark.parametrize("name", GENOMES)
@pytest.mark.parametrize("tokens", [5, 70])
def test_state_bytes_are_those_of_the_state_object(registry: Registry, name: str, tokens: int) -> None:
    model = LanguageModel(GENOMES[name], registry).eval()
    tokens_BT = torch.zeros(1, tokens, dtype=torch.int64)
    state = model.init_state(1, slots=tokens)
    with torch.no_grad():
        _, state = model(tokens_BT, model.context(tokens_BT, state=state), state)
    assert state is not None
    assert estimate(registry, GENOMES[name], tokens).state_bytes == state.mixer_bytes()


def test_a_tiny_transformer_counted_by_hand(registry: Registry) -> None:
    """2 layers, D 16, 2 heads of 6, SwiGLU of 20, V 23, at 10 tokens; every number is written out."""
    V, D, inner, F, T = 23, 16, 12, 20, 10
    layer = Block(
        sublayers=(
            Sublayer(mixer="attention", params={"heads": 2, "head_size": 6}),
            Sublayer(mixer="swiglu", params={"hidden": F}),
        )
    )
    architecture = Architecture(vocab=V, d_model=D, stages=(Stage(blocks=(layer, layer)),))
    ledger = estimate(registry, architecture, T)
    weights = 4 * D * inner + 3 * D * F
    assert ledger.parameters == V * D + 2 * (weights + 2 * D) + D
    assert ledger.active_parameters == ledger.parameters
    # Scores and their product with the values: 2 x 2 FLOPs per visible key and channel; (T+1)/2 keys on average, T at the last.
    mean = 2 * V * D + 2 * (2 * weights + 4 * inner * (T + 1) / 2)
    last = 2 * V * D + 2 * (2 * weights + 4 * inner * T)
    assert ledger.prefill_flops_per_token == mean
    assert ledger.training_flops_per_token == 3 * mean
    assert ledger.decode_flops_per_token == last
    # Brute force: every (query, key) pair that causal attention may see.
    pairs = sum(1 for q in range(T) for k in range(T) if k <= q)
    assert (ledger.prefill_flops_per_token - 2 * V * D - 4 * weights) * T == 2 * 4 * inner * pairs


@pytest.mark.parametrize(
    ("mixer", "grows"), [("attention", True), ("mamba2", False), ("gated_deltanet", False)]
)
def test_only_attention_reads_more_the_longer_the_context(
    registry: Registry, mixer: str, grows: bool
) -> None:
    """Decoding is affine in T for attention and constant for recurrences."""
    blocks = (Block(sublayers=(Sublayer(mixer=mixer),)),)
    architecture = Architecture(vocab=32, d_model=64, stages=(Stage(blocks=blocks),))
    at = [estimate(registry, architecture, t).decode_flops_per_token for t in (64, 128, 256)]
    slopes = [(at[1] - at[0]) / 64, (at[2] - at[1]) / 128]
    assert slopes[0] == slopes[1]
    assert (slopes[0] > 0) == grows
