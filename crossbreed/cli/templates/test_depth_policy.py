"""my_depth_policy by every rule of its kind: its plan, and a model that follows it."""

from __future__ import annotations

from pathlib import Path

import torch

from crossbreed import Architecture, Host
from crossbreed.core.conformance.testing import DepthPolicyConformance
from crossbreed.core.model.language_model import LanguageModel

FILES = (str(Path(__file__).with_name("my_depth_policy.py")),)
PARTS = Host.load(FILES)


class TestRules(DepthPolicyConformance):
    plugin = "my_depth_policy"
    files = FILES


def test_it_runs_the_blocks_there_and_back_with_shared_weights() -> None:
    config = PARTS.config("depth", "my_depth_policy", {})
    policy = PARTS.factory("depth", "my_depth_policy")(config)
    assert [(step.depth, step.block) for step in policy.plan(2, 3)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 2),
        (1, 1),
        (1, 0),
    ]
    assert policy.weight_sets(2) == 1
    back = PARTS.factory("depth", "my_depth_policy")(
        PARTS.config("depth", "my_depth_policy", {"back_first": True})
    )
    assert [step.block for step in back.plan(1, 3)] == [2, 1, 0]


def test_a_model_on_it_decodes_as_it_reads() -> None:
    block = {
        "sublayers": [{"mixer": "gated_deltanet", "params": {"heads": 2, "key_size": 4, "value_size": 4}}]
    }
    stage = {"depth": {"name": "my_depth_policy", "repeats": 3}, "blocks": [block, block]}
    genome = Architecture.model_validate({"vocab": 11, "d_model": 8, "stages": [stage]})
    model, tokens = LanguageModel(PARTS.canonical(genome), PARTS).double(), torch.arange(9)[None]
    whole, _ = model(tokens, model.context(tokens))
    state, found = model.init_state(1, dtype=torch.float64), []
    for token in tokens.split(1, dim=1):
        h, state = model(token, model.context(token, phase="decode", state=state), state)
        found.append(h)
    torch.testing.assert_close(torch.cat(found, 1), whole)
