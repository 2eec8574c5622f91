"""Plans are legal and rise, and a model built on one costs and decodes what it says."""

import pytest
import torch
from ramp_depth import Ramp, RampConfig

from crossbreed import Architecture, Host, Shape
from crossbreed.core.conformance.testing import DepthPolicyConformance
from crossbreed.core.model.language_model import LanguageModel

PARTS = Host.load()


class TestRules(DepthPolicyConformance):
    plugin = "ramp"


@pytest.mark.parametrize("start", [0.01, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("repeats", [1, 2, 5])
@pytest.mark.parametrize("blocks", [1, 2, 3, 7])
def test_widths_rise_to_all_blocks_and_weights_are_shared(start, repeats, blocks):
    policy = Ramp(RampConfig(start=start))
    plan = policy.plan(repeats, blocks)
    widths = [sum(step.depth == depth for step in plan) for depth in range(repeats)]
    assert widths == sorted(widths)
    assert widths[0] >= 1
    assert widths[-1] == blocks
    assert plan == sorted(plan)
    assert policy.weight_sets(repeats) == 1


def test_the_start_is_a_share_of_the_blocks():
    widths = [Ramp(RampConfig(start=0.5)).width(depth, 3, 4) for depth in range(3)]
    assert widths == [2, 3, 4]


def stage(depth):
    sublayers = [{"mixer": "gated_deltanet", "params": {"heads": 2, "key_size": 4, "value_size": 4}}]
    genome = {
        "vocab": 11,
        "d_model": 8,
        "stages": [{"depth": depth, "blocks": [{"sublayers": sublayers}] * 2}],
    }
    return PARTS.canonical(Architecture.model_validate(genome))


def test_a_ramp_costs_its_runs_and_one_set_of_weights():
    model = PARTS.factory("cost", "analytic")(PARTS.config("cost", "analytic", {}), PARTS)
    ledgers = {
        start: model.estimate(
            stage({"name": "ramp", "repeats": 2, "params": {"start": start}}), Shape(tokens=16)
        )
        for start in (0.5, 1.0)
    }
    blocks = {start: ledger.training_flops_per_token - 6 * 8 * 11 for start, ledger in ledgers.items()}
    assert blocks[0.5] == pytest.approx(blocks[1.0] * 3 / 4)
    assert ledgers[0.5].parameters == ledgers[1.0].parameters


def test_one_token_at_a_time_is_the_whole():
    genome = stage({"name": "ramp", "repeats": 3, "params": {"start": 0.5}})
    model, tokens = LanguageModel(genome, PARTS).double(), torch.arange(12).reshape(1, 12) % 11
    whole, _ = model(tokens, model.context(tokens))
    state, found = model.init_state(1, dtype=torch.float64), []
    for token in tokens.split(1, dim=1):
        h, state = model(token, model.context(token, phase="decode", state=state), state)
        found.append(h)
    torch.testing.assert_close(torch.cat(found, 1), whole)
