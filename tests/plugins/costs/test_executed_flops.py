"""Executed FLOPs against a count of the operations that PyTorch really dispatched, with decisions forced.

The count shares no formula with the cost model: it sees sizes of matrices, not of mixers.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from crossbreed.core.conformance.flop_count import count_flops
from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import GENOMES

T = 64
SHARES = {0.0: (1.0, 0.0), 0.5: (0.5, 0.5), 1.0: (0.0, 1.0)}


def forced(ledger: Ledger, rate: float, tokens: int) -> dict[str, Tensor]:
    """The same share of choice 1 at every site: none, every second token, or all."""
    choice_T = torch.arange(tokens) % 2 if rate == 0.5 else torch.full((tokens,), int(rate))
    return dict.fromkeys(ledger.rates, choice_T[None])


def ledgers(registry: Registry, architecture: Architecture, rate: float) -> Ledger:
    costs = registry.factory("cost", "analytic")(None, registry)
    canonical = registry.canonical(architecture)
    nominal: Ledger = costs.estimate(canonical, Shape(1, T))
    rates = dict.fromkeys(nominal.rates, SHARES[rate])
    return costs.estimate(canonical, Shape(1, T), rates=rates)  # type: ignore[no-any-return]


# A feedback router is evaluated segment by segment, in pieces whose lengths the ledger does not know.
IN_ONE_PIECE = sorted(set(GENOMES) - {"oryx_entropy"})
ROUTED = [
    n for n in GENOMES if any(r in repr(GENOMES[n]) for r in ("entropy_gate", "learned", "segment_random"))
]
CASES = [(n, 0.5) for n in GENOMES] + [(n, r) for n in ROUTED for r in (0.0, 1.0)]


@pytest.mark.parametrize(("name", "rate"), [c for c in CASES if c[0] in IN_ONE_PIECE])
def test_prefill(registry: Registry, name: str, rate: float) -> None:
    ledger = ledgers(registry, GENOMES[name], rate)
    model = LanguageModel(GENOMES[name], registry).eval()
    tokens_BT = torch.randint(GENOMES[name].vocab, (1, T))
    context = model.context(tokens_BT, forced=forced(ledger, rate, T))
    with torch.no_grad():
        counted = count_flops(lambda: model.logits(model(tokens_BT, context)[0]))
    assert counted / T == pytest.approx(ledger.executed_prefill_flops_per_token, rel=0.01)


@pytest.mark.parametrize(("name", "rate"), [(n, 0.5) for n in GENOMES] + [("halting", 0.0), ("amor", 1.0)])
def test_training(registry: Registry, name: str, rate: float) -> None:
    ledger = ledgers(registry, GENOMES[name], rate)
    model = LanguageModel(GENOMES[name], registry).train()
    tokens_BT = torch.randint(GENOMES[name].vocab, (1, T))
    context = model.context(tokens_BT, phase="train", labels_BT=tokens_BT, forced=forced(ledger, rate, T))
    counted = count_flops(lambda: model.loss(Batch(tokens_BT, tokens_BT), context).objective.backward())
    assert counted / T == pytest.approx(ledger.executed_training_flops_per_token, rel=0.01)


@pytest.mark.parametrize(
    ("name", "rate"), [c for c in CASES if c[1] != 0.5] + [(n, 1.0) for n in GENOMES if n not in ROUTED]
)
def test_decode(registry: Registry, name: str, rate: float) -> None:
    """The token after T - 1 others, read by nobody or by all."""
    ledger = ledgers(registry, GENOMES[name], rate)
    model = LanguageModel(GENOMES[name], registry).eval()
    tokens_BT = torch.randint(GENOMES[name].vocab, (1, T))
    with torch.no_grad():
        state = model.init_state(1, slots=T)
        _, state = model(tokens_BT[:, :-1], model.context(tokens_BT[:, :-1], state=state), state)
        last_BT = tokens_BT[:, -1:]
        context = model.context(last_BT, phase="decode", state=state, forced=forced(ledger, rate, 1))
        counted = count_flops(lambda: model.logits(model(last_BT, context, state)[0]))
    assert counted == pytest.approx(ledger.executed_decode_flops_per_token, rel=0.01)
