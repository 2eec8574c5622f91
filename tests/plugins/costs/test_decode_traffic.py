"""Bytes moved per decoded token against the weights and state that a decoding step really touches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from crossbreed.core.host import Registry
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import GENOMES

T = 40
VIEWS = (
    "view",
    "expand",
    "transpose",
    "t",
    "unbind",
    "slice",
    "select",
    "detach",
    "alias",
    "permute",
    "unsqueeze",
    "split",
)


class WeightReads(TorchDispatchMode):
    """Counts bytes of a model's parameters that operations take as arguments; views move nothing, look-ups a row."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.own = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name == "embedding":
            self.bytes += result.numel() * result.element_size()
        elif name.split("_")[0] not in VIEWS and name not in VIEWS:
            tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            mine = [t for t in tensors if t.untyped_storage().data_ptr() in self.own]
            self.bytes += sum(t.numel() * t.element_size() for t in mine)
        return result


@pytest.mark.parametrize(
    "name",
    [
        "transformer",
        "mamba2",
        "gated_deltanet",
        "fused",
        "parallel_untied",
        "recurrent_experts",
        "layered_repeats",
        "dreamer",
    ],
)
def test_weights_are_moved_once_a_run(registry: Registry, name: str) -> None:
    """The same weights at another depth are read again; experts that a token does not use are not read."""
    model = LanguageModel(GENOMES[name], registry).eval()
    tokens_BT = torch.randint(GENOMES[name].vocab, (1, T))
    with torch.no_grad():
        state = model.init_state(1, slots=T)
        _, state = model(tokens_BT[:, :-1], model.context(tokens_BT[:, :-1], state=state), state)
        last_BT = tokens_BT[:, -1:]
        context = model.context(last_BT, phase="decode", state=state)
        with WeightReads(model) as reads:
            model.logits(model(last_BT, context, state)[0])
    ledger = registry.factory("cost", "analytic")(None, registry).estimate(
        registry.canonical(GENOMES[name]), Shape(1, T)
    )
    state_bytes = sum(part.state_traffic_bytes_per_token for part in ledger.parts)
    # Single vectors (a decay, a gain) may be touched twice on the way.
    assert ledger.decode_traffic_bytes_per_token - state_bytes == pytest.approx(reads.bytes, rel=0.05)


@pytest.mark.parametrize("name", GENOMES)
def test_state_is_read_whole_and_written_where_it_changes(registry: Registry, name: str) -> None:
    """A recurrent state moves twice; a cache is read at its slots and written at one. Nothing is read where all skip."""
    costs = registry.factory("cost", "analytic")(None, registry)
    genome = registry.canonical(GENOMES[name])
    nominal = costs.estimate(genome, Shape(1, T))
    rates = {site: (0.0,) * (len(shares) - 1) + (1.0,) for site, shares in nominal.rates.items()}
    ledger = costs.estimate(genome, Shape(1, T), rates=rates)
    for part in ledger.parts:
        if part.state_bytes and part.name != "multi_mixer":
            assert part.state_bytes <= part.state_traffic_bytes_per_token <= 2.2 * part.state_bytes, part.site
