"""Depth policies: the order of runs, and which of them share weights."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crossbreed.core.contracts.depth import Step
from crossbreed.plugins.depth import register_depth_policies
from crossbreed.plugins.depth.configs import LayeredConfig, RecurrentConfig
from crossbreed.plugins.depth.policies import Layered, Recurrent


def test_layered_repeats_have_weights_of_their_own():
    policy = Layered(LayeredConfig())
    assert policy.plan(2, 2) == [Step(0, 0, 0), Step(0, 1, 0), Step(1, 0, 1), Step(1, 1, 1)]
    assert policy.weight_sets(3) == 3
    assert not policy.injects_input()


def test_recurrent_repeats_share_one_set():
    policy = Recurrent(RecurrentConfig())
    assert policy.plan(3, 1) == [Step(0, 0, 0), Step(1, 0, 0), Step(2, 0, 0)]
    assert policy.weight_sets(3) == 1
    assert not policy.injects_input()
    assert Recurrent(RecurrentConfig(inject=True)).injects_input()


@pytest.mark.parametrize("policy", [Layered(LayeredConfig()), Recurrent(RecurrentConfig())])
def test_one_repeat_is_the_same_model_under_both(policy):
    assert policy.plan(1, 3) == [Step(0, 0, 0), Step(0, 1, 0), Step(0, 2, 0)]


def test_descriptors_say_what_the_plans_do():
    for descriptor in register_depth_policies():
        policy = {"layered": Layered, "recurrent": Recurrent}[descriptor.name](descriptor.config())
        assert descriptor.shares_weights == (policy.weight_sets(4) == 1)


@pytest.mark.parametrize("config", [LayeredConfig, RecurrentConfig])
def test_unknown_settings_are_refused(config):
    with pytest.raises(ValueError, match="repeat"):
        config(repeat=3)


def test_policies_need_no_torch():
    code = "import sys, crossbreed.plugins.depth.policies; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
