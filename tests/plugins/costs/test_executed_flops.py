"""Executed FLOPs against a count of the operations that PyTorch really dispatched, with decisions forced.

The count shares no formula with the cost model: it sees sizes of matrices, not of mixers.
"""

from __future__ import annotations

import pytest

from crossbreed.core.host import Registry
from crossbreed.plugins.mixers import accounting
from tests.support.forced import Forced
from tests.support.genomes import GENOMES, architecture, block

T = 64
ROUTED = [
    n for n in GENOMES if any(r in repr(GENOMES[n]) for r in ("entropy_gate", "learned", "segment_random"))
]
CASES = [(n, 0.5) for n in GENOMES] + [(n, r) for n in ROUTED for r in (0.0, 1.0)]
# A feedback router is evaluated segment by segment, in pieces whose lengths the ledger does not know.
IN_ONE_PIECE = [c for c in CASES if c[0] != "oryx_entropy"]


@pytest.mark.parametrize(("name", "rate"), IN_ONE_PIECE)
def test_prefill(registry: Registry, name: str, rate: float) -> None:
    counted, ledger = Forced(registry, GENOMES[name], rate).prefill(T)
    assert counted == pytest.approx(ledger.executed_prefill_flops_per_token, rel=0.01)


@pytest.mark.parametrize(("name", "rate"), CASES)
def test_training(registry: Registry, name: str, rate: float) -> None:
    counted, ledger = Forced(registry, GENOMES[name], rate).train(T)
    assert counted == pytest.approx(ledger.executed_training_flops_per_token, rel=0.01)


@pytest.mark.parametrize(("name", "rate"), CASES)
def test_decode(registry: Registry, name: str, rate: float) -> None:
    """The token after T - 1 others, read by nobody, by half of the rows, or by all."""
    counted, ledger = Forced(registry, GENOMES[name], rate).decode(T)
    assert counted == pytest.approx(ledger.executed_decode_flops_per_token, rel=0.01)


@pytest.mark.parametrize("top_k", [None, 3])
def test_blocks_of_a_window_are_counted_as_they_are_computed(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, top_k: int | None
) -> None:
    monkeypatch.setattr(accounting, "QUERIES", 12)
    # Heads that no other test has: costs of parts are kept.
    params = {"heads": 3, "head_size": 10, "window": 7, "top_k": top_k}
    forced = Forced(
        registry, architecture({"blocks": [block({"mixer": "attention", "params": params})]}), 0.5
    )
    for counted, ledger, name in (
        (*forced.prefill(T), "executed_prefill_flops_per_token"),
        (*forced.train(T), "executed_training_flops_per_token"),
    ):
        assert counted == pytest.approx(getattr(ledger, name), rel=0.01)
