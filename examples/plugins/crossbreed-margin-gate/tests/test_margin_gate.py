"""The margin gate inside a small model: what it chooses, when it learns, what it costs."""

import pytest
import torch
from margin_gate import MarginGateConfig
from margin_gate.gate import MarginGate, margin

from crossbreed import Architecture, ConfigError, Host, RouterBuild, Shape
from crossbreed.core.conformance.testing import RouterConformance
from crossbreed.core.contracts.context import Recorder
from crossbreed.core.model.language_model import LanguageModel

PARTS = Host.load()
TOKENS = torch.arange(48).reshape(2, 24) * 7 % 11


class TestRules(RouterConformance):
    plugin = "margin_gate"


def model(**settings):
    """A gated attention block in float64, with an output head of its own that is loud enough for margins to differ."""
    block = {
        "sublayers": [{"mixer": "attention", "params": {"heads": 2, "head_size": 4}}],
        "gate": {"name": "margin_gate", "params": settings},
    }
    genome = Architecture.model_validate(
        {"vocab": 11, "d_model": 8, "tie_embeddings": False, "stages": [{"blocks": [block]}]}
    )
    built = LanguageModel(PARTS.canonical(genome), PARTS).double()
    with torch.no_grad():
        built.head.weight.copy_(torch.randn(11, 8, generator=torch.Generator().manual_seed(1)) / 2)
    return built


def choices(built, tokens, *, cuts=(), **fields):
    """choice_BT of the gate when the text is read in pieces between ``cuts``."""
    found, state = [], built.init_state(len(tokens))
    for piece in torch.tensor_split(tokens, cuts, dim=1):
        recorder = Recorder(detail=True)
        context = built.context(piece, state=state, recorder=recorder, **fields)
        _, state = built(piece, context, state)
        found += [facts["choice_BT"] for site, facts in recorder.records if "choice_BT" in facts]
    return torch.cat(found, 1)


def test_the_margin_is_the_gap_between_the_two_likeliest_tokens():
    logits = torch.tensor([[0.0, 0.0, -torch.inf], [torch.inf, 0.0, 0.0], [2.0, 1.0, 0.0]])
    logits[1, 0] = 1000.0
    p = torch.softmax(logits[2], 0)
    assert torch.allclose(margin(logits), torch.stack([torch.tensor(0.0), torch.tensor(1.0), p[0] - p[1]]))


def test_it_runs_where_the_margin_is_small():
    built = model(threshold="fixed", tau=0.3)
    h_BTD = built.stages[0].weight_sets[0][0].norms[0](built.embedding(TOKENS))
    wanted = margin((h_BTD @ built.output_weight_VD.mT).flatten(0, 1)).view(TOKENS.shape) < 0.3
    found = choices(built, TOKENS)
    assert torch.equal(found, wanted.long())
    assert 0 < found.sum() < found.numel()


@pytest.mark.parametrize("threshold", ["running", "fixed"])
def test_no_choice_depends_on_a_later_token_or_on_the_pieces_it_is_read_in(threshold):
    built = model(threshold=threshold)
    whole = choices(built, TOKENS)
    assert 0 < whole.sum() < whole.numel()
    other = TOKENS.clone()
    other[:, 15:] = 3
    assert torch.equal(choices(built, other)[:, :15], whole[:, :15])
    assert torch.equal(choices(built, TOKENS, cuts=(1, 2, 9)), whole)


def test_the_threshold_moves_in_training_only_and_follows_the_margins():
    built = model(momentum=0.5)
    gate = next(m for m in built.modules() if isinstance(m, MarginGate))
    before = gate.mu.clone()
    choices(built, TOKENS)
    assert torch.equal(gate.mu, before)
    margins = torch.tensor([[0.1, 0.2, 0.9]], dtype=torch.float64)
    context = built.context(TOKENS[:1, :3], phase="train").at(output_measure=lambda h, measure: margins)
    decision, _ = gate(torch.zeros(1, 3, 8), context, None)
    assert torch.equal(gate.mu, before)
    gate.after_step([decision.statistics])
    assert float(gate.mu) == pytest.approx((0.5 + 0.2) / 2)
    gate.after_step([])
    assert float(gate.mu) == pytest.approx(0.35)


def test_a_segment_takes_the_choice_of_its_first_token():
    alone, held = (
        choices(model(threshold="fixed"), TOKENS),
        choices(model(threshold="fixed", segment=5), TOKENS),
    )
    assert torch.equal(held, alone[:, torch.arange(24) // 5 * 5])


def test_it_costs_the_probe_and_tells_two_choices_apart():
    config = MarginGateConfig()
    cost = MarginGate.cost(config, RouterBuild("0.0.gate", "gate", 8, 11, 2), Shape())
    assert cost.write.forward == cost.write.training == 2 * 8 * 11
    assert sum(MarginGate.rates(config, "gate", 2)) == pytest.approx(1)
    with pytest.raises(ConfigError, match="2 choices apart, got 3"):
        MarginGate.rates(config, "mode", 3)
