"""Executed FLOPs against a count of the operations that PyTorch really dispatched, with decisions forced.

The count shares no formula with the cost model: it sees sizes of matrices, not of mixers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Registry
from crossbreed.core.ledger import Ledger, Shape
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import GENOMES

T = 64
SHARES = {0.0: (1.0, 0.0), 0.5: (0.5, 0.5), 1.0: (0.0, 1.0)}


def _attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    B, H, queries, K = q
    return int(2 * B * H * queries * k[2] * (K + v[-1]))


def _attention_backward(_grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Scores again, then the gradients of values, probabilities, queries and keys: five products."""
    B, H, queries, K = q
    return int(2 * B * H * queries * k[2] * (3 * K + 2 * v[-1]))


def _solve(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """Substitution with a triangular matrix: half the multiply-adds of a product."""
    return int(prod(b) * a[-1])


def _depthwise_backward(grad: Any, _x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Gradients of input and weight; PyTorch's own formula takes groups for a dense convolution."""
    return int(2 * 2 * prod(grad) * weight[-1])


MISSING = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    torch.ops.aten.linalg_solve_triangular: _solve,
    torch.ops.aten.convolution_backward: _depthwise_backward,
}
"""Operations that PyTorch counts as nothing, or wrongly."""


def count(run: Callable[[], object]) -> float:
    with FlopCounterMode(display=False, custom_mapping=MISSING) as counter:
        run()
    return float(counter.get_total_flops())


def forced(ledger: Ledger, rate: float, tokens: int) -> dict[str, Tensor]:
    """The same share of choice 1 at every site: none, half, or all of the tokens that are asked.

    Half are those whose number has a certain bit: the bit of the site's depth, so that the choices of halts, which nest,
    are independent.
    """
    number_T = torch.arange(tokens)
    choices = {}
    for site in ledger.rates:
        depth = int(site.split(".")[-2]) if "." in site else 0
        choices[site] = (number_T >> depth & 1 if rate == 0.5 else torch.full((tokens,), int(rate)))[None]
    return choices


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
        counted = count(lambda: model.logits(model(tokens_BT, context)[0]))
    assert counted / T == pytest.approx(ledger.executed_prefill_flops_per_token, rel=0.01)


@pytest.mark.parametrize(("name", "rate"), [(n, 0.5) for n in GENOMES] + [("halting", 0.0), ("amor", 1.0)])
def test_training(registry: Registry, name: str, rate: float) -> None:
    ledger = ledgers(registry, GENOMES[name], rate)
    model = LanguageModel(GENOMES[name], registry).train()
    tokens_BT = torch.randint(GENOMES[name].vocab, (1, T))
    context = model.context(tokens_BT, phase="train", labels_BT=tokens_BT, forced=forced(ledger, rate, T))
    counted = count(lambda: model.loss(Batch(tokens_BT, tokens_BT), context).objective.backward())
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
        counted = count(lambda: model.logits(model(last_BT, context, state)[0]))
    assert counted == pytest.approx(ledger.executed_decode_flops_per_token, rel=0.01)
