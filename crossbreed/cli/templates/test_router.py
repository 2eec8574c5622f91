"""my_router by every rule of its kind, and inside a small model: what it chooses, and that it sees no later token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crossbreed import Architecture, ConfigError, Host, RouterBuild, Shape
from crossbreed.core.conformance.testing import RouterConformance
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.model.language_model import LanguageModel

FILES = (str(Path(__file__).with_name("my_router.py")),)
PARTS = Host.load(FILES)
TOKENS = torch.arange(40).reshape(2, 20) * 7 % 11


class TestRules(RouterConformance):
    plugin = "my_router"
    files = FILES


def model(threshold: float) -> LanguageModel:
    """A gated attention block, with an output head loud enough for entropies to differ."""
    block = {
        "sublayers": [{"mixer": "attention", "params": {"heads": 2, "head_size": 4}}],
        "gate": {"name": "my_router", "params": {"threshold": threshold}},
    }
    data = {"vocab": 11, "d_model": 8, "tie_embeddings": False, "stages": [{"blocks": [block]}]}
    built = LanguageModel(PARTS.canonical(Architecture.model_validate(data)), PARTS).double()
    with torch.no_grad():
        built.output_weight_VD.copy_(torch.randn(11, 8, generator=torch.Generator().manual_seed(0)))
    return built


def choices(built: LanguageModel, tokens: torch.Tensor, cuts: tuple[int, ...] = ()) -> torch.Tensor:
    """choice_BT at the gate when the text is read in pieces between ``cuts``."""
    found, state = [], built.init_state(len(tokens))
    for piece in torch.tensor_split(tokens, cuts, dim=1):
        recorder = Recorder(detail=True)
        _, after = built(piece, built.context(piece, state=state, recorder=recorder), state)
        state = after
        found += [facts["choice_BT"] for _, facts in recorder.records if "choice_BT" in facts]
    return torch.cat(found, 1)


def test_a_higher_threshold_runs_fewer_tokens() -> None:
    runs = [int(choices(model(threshold), TOKENS).sum()) for threshold in (0.0, 0.6, 1.0)]
    assert runs[0] == TOKENS.numel() > runs[1] > runs[2] == 0


def test_no_choice_depends_on_later_tokens_or_on_the_pieces_it_is_read_in() -> None:
    built = model(0.6)
    whole, other = choices(built, TOKENS), TOKENS.clone()
    other[:, 13:] = 3
    assert torch.equal(choices(built, other)[:, :13], whole[:, :13])
    assert torch.equal(choices(built, TOKENS, cuts=(1, 2, 9)), whole)


def test_its_rates_are_shares_and_its_cost_is_the_probe() -> None:
    router = PARTS.factory("router", "my_router")
    config = PARTS.config("router", "my_router", {"threshold": 0.7})
    assert router.rates(config, "gate", 2) == pytest.approx((0.7, 0.3))
    assert router.cost(config, RouterBuild("0.0.gate", "gate", 8, 11, 2), Shape()).write.forward == 2 * 8 * 11


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="threshold"):
        PARTS.config("router", "my_router", {"threshold": 1.5})
