"""Oryx's own FLOP formulas (arXiv 2605.28769, appendix C) against the ledger's, and where the two conventions part.

The paper counts one head over T tokens, projections left out: C is its chunk and its head size, delta the share of tokens
read by the recurrence. The ledger counts the causal half inside its chunk of 64, no scan between chunks, and what the
recurrence reads for every token, because the chunk form computes it for all of a chunk at once.
"""

from __future__ import annotations

import pytest

from crossbreed.core.contracts.mixer import HeadShape
from crossbreed.core.host import Registry, import_late
from crossbreed.core.ledger import CHUNK, Cost, Shape
from tests.support.genomes import architecture, block, gate

C = 128
DELTA = 0.75
ONE_HEAD = HeadShape(1, 1, 1, 1, C, C)


def paper_attention(T: int) -> float:
    return T * (T + 1) * 2 * C


def paper_oryx(T: int, delta: float) -> float:
    state = 2 * T * C * C + 2 * T * C * C / C
    return state + delta * (2 * T * C * 2 * C + 2 * T * C * C) + (1 - delta) * paper_attention(T)


def paper_ratio(T: int, delta: float) -> float:
    """Oryx to attention, leading terms: (1 - delta) + (1 + 3 delta) C/T."""
    return (2 * T * C * C * (1 + 3 * delta) + 2 * (1 - delta) * T * T * C) / (2 * T * T * C)


def of_reader(registry: Registry, name: str, T: int) -> Cost:
    descriptor = registry.descriptor("mixer", name)
    reader = import_late(descriptor.reader)
    # A width of 0 leaves out what decays and gates are projected from.
    found: Cost = reader.cost(descriptor.reader_config(), ONE_HEAD, 0, Shape(1, T))
    return found


def ledger_oryx(registry: Registry, T: int, delta: float, linear: str = "mamba2") -> float:
    """What conditional reading costs: the recurrence always, attention at its share."""
    recurrence, attention = of_reader(registry, linear, T), of_reader(registry, "attention", T)
    reads = delta * recurrence.reads[0].forward + (1 - delta) * attention.reads[0].forward
    return T * (recurrence.write.forward + reads)


def test_the_papers_headline_numbers_follow_from_its_formula() -> None:
    assert paper_ratio(2048, DELTA) == pytest.approx(0.453, abs=5e-4)
    cheaper = [T for T in range(1, 2000) if paper_ratio(T, DELTA) < 1]
    assert cheaper == list(range(555, 2000))
    # The exact formula has the small terms that the leading ones leave out.
    assert paper_oryx(2048, DELTA) / paper_attention(2048) == pytest.approx(0.453, abs=2e-3)


@pytest.mark.parametrize("T", [1, 63, 555, 2048])
def test_attention_is_counted_alike(registry: Registry, T: int) -> None:
    assert T * of_reader(registry, "attention", T).reads[0].forward == paper_attention(T)


@pytest.mark.parametrize("delta", [0.0, 0.5, DELTA, 1.0])
@pytest.mark.parametrize("T", [128, 512, 2048])
def test_the_conventions_part_where_a_recurrence_reads_and_nowhere_else(
    registry: Registry, T: int, delta: float
) -> None:
    """The paper reads a full chunk of 128 for what is causal, at the share, and adds the scan over chunks."""
    seen = (CHUNK + 1) / 2
    between = 2 * C * C / C + delta * (2 * C * 2 * C + 2 * C * C) - (2 * seen * 2 * C + 2 * C * C)
    assert paper_oryx(T, delta) - ledger_oryx(registry, T, delta) == pytest.approx(T * between, rel=1e-12)


def test_by_the_ledger_the_crossover_is_earlier_and_the_ratio_lower(registry: Registry) -> None:
    def ratio(T: int) -> float:
        return ledger_oryx(registry, T, DELTA) / paper_attention(T)

    assert ratio(2048) == pytest.approx(0.4067, abs=5e-5)
    # Whole chunks, so that the mean inside the chunk does not change with the length.
    cheaper = [T for T in range(CHUNK, 1024, CHUNK) if ratio(T) < 1]
    assert cheaper == list(range(7 * CHUNK, 1024, CHUNK))


def test_the_delta_rule_writes_at_a_higher_price(registry: Registry) -> None:
    """The paper's formulas are Mamba-2's; the triangular system of Gated DeltaNet comes on top."""
    extra = ledger_oryx(registry, 2048, DELTA, "gated_deltanet") - ledger_oryx(registry, 2048, DELTA)
    # A second state-sized product, keys against keys, and the solve: (2K + V) for each earlier token of the chunk.
    assert extra / 2048 == pytest.approx(2 * C * C + 2 * 3 * C * ((CHUNK + 1) / 2 - 1), rel=1e-12)


@pytest.mark.parametrize("linear", ["mamba2", "gated_deltanet"])
@pytest.mark.parametrize("tokens", [64, 500])
def test_a_decoded_token_pays_for_its_own_reader(registry: Registry, linear: str, tokens: int) -> None:
    """Per layer of width D = H d: the state's update always, 4 t D to attend to t tokens, 2 D d to read the state."""
    heads, size, layers = 3, 16, 2
    D = heads * size
    mixer = {
        "mixer": "multi_mixer",
        "params": {"readers": [linear, "attention"], "heads": heads, "head_size": size},
    }
    genome = architecture({"blocks": [block(mixer)] * layers}, mode_router=gate("segment_random"))
    genome = registry.canonical(genome.model_copy(update={"d_model": D}))
    costs = registry.factory("cost", "analytic")(None, registry)

    def decode(attention: float, without: str = "") -> float:
        rates = {"mode": (1 - attention, attention)}
        return float(costs.estimate(genome, Shape(1, tokens), rates=rates).decode_flops_per_token)

    reading_state, attending = decode(0.0), decode(1.0)
    assert attending - reading_state == layers * (4 * tokens * D - 2 * D * size)
    assert decode(0.25) == pytest.approx(0.75 * reading_state + 0.25 * attending)
    # Neither reads: projections of keys, values, one query, gate and output; convolution; decays; the state's update.
    head = 2 * 23 * D
    small = {"mamba2": heads, "gated_deltanet": 2 * heads}[linear]
    update = {"mamba2": 2, "gated_deltanet": 4}[linear] * D * size
    layer = 2 * 5 * D * D + 2 * 4 * 2 * D + 2 * D * small + update
    assert reading_state == head + layers * (layer + 2 * D * size)
