"""The average against a loop over tokens, and every rule of mixers that crossbreed knows."""

import pytest
import torch
import torch.nn.functional as F
from ema_mixer import EmaConfig
from ema_mixer.layer import Ema

from crossbreed import Context, MixerBuild
from crossbreed.core.conformance.testing import MixerConformance


class TestRules(MixerConformance):
    plugin = "ema"


def layer(**settings):
    torch.manual_seed(0)
    return Ema(EmaConfig(heads=2, head_size=3, **settings), MixerBuild(5)).double()


def looped(mixer, x_TD, starts=()):
    """y_TD by the definition, one token after another."""
    decay_H1 = torch.sigmoid(mixer.decay_logit_H)[:, None]
    mean_HV, found = torch.zeros(2, 3, dtype=x_TD.dtype), []
    for t, x_D in enumerate(x_TD):
        if t in starts:
            mean_HV = torch.zeros_like(mean_HV)
        mean_HV = decay_H1 * mean_HV + (1 - decay_H1) * mixer.value(x_D).view(2, 3)
        found.append(mixer.out(mean_HV.flatten() * F.silu(mixer.gate(x_D))))
    return torch.stack(found)


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 150])
def test_the_average_is_the_recurrence(tokens):
    mixer, x = layer(), torch.randn(2, tokens, 5, dtype=torch.float64)
    context = Context(torch.arange(tokens).expand(2, -1), torch.arange(2))
    y, _ = mixer(x, context, None)
    torch.testing.assert_close(y, torch.stack([looped(mixer, row) for row in x]))


def test_a_document_starts_the_average_anew_inside_a_piece():
    mixer, x = layer(), torch.randn(1, 100, 5, dtype=torch.float64)
    positions = torch.cat((torch.arange(70), torch.arange(30)))[None]
    context = Context(positions, torch.arange(1), document_BT=(positions.cumsum(1) < 0).long())
    y, _ = mixer(x, context, None)
    torch.testing.assert_close(y[0], looped(mixer, x[0], starts=(0, 70)))


def test_half_lives_start_between_the_settings():
    decay_H = torch.sigmoid(Ema(EmaConfig(heads=3, shortest=1, longest=4), MixerBuild(5)).decay_logit_H)
    torch.testing.assert_close(decay_H, torch.tensor([0.5, 0.5**0.5, 0.5**0.25]))
