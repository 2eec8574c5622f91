"""my_mixer by every rule of its kind, and against its definition."""

from __future__ import annotations

from pathlib import Path

import torch

from crossbreed import Context, Host, MixerBuild
from crossbreed.core.conformance.testing import MixerConformance

FILES = (str(Path(__file__).with_name("my_mixer.py")),)
PARTS = Host.load(FILES)


class TestRules(MixerConformance):
    plugin = "my_mixer"
    files = FILES


def test_each_token_sees_the_one_before_it() -> None:
    config = PARTS.config("mixer", "my_mixer", {"width": 6})
    mixer = PARTS.factory("mixer", "my_mixer")(config, MixerBuild(5)).double()
    x_BTD = torch.randn(2, 9, 5, dtype=torch.float64)
    y_BTD, _ = mixer(x_BTD, Context(torch.arange(9).expand(2, -1), torch.arange(2)), None)
    v_BTW = mixer.project(x_BTD)
    for t in range(9):
        before_BW = v_BTW[:, t - 1] if t else torch.zeros_like(v_BTW[:, 0])
        torch.testing.assert_close(y_BTD[:, t], mixer.out((v_BTW[:, t] + before_BW) / 2))
