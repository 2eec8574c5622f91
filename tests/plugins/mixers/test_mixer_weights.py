"""Initial values, weight decay marks and gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crossbreed.core.contracts.mixer import MixerBuild
from tests.plugins.mixers.helpers import ALL, PARTS, SEQUENCE, case, context, random_input, with_mode


def plain(name: str, params: dict[str, Any], d_model: int = 64) -> Any:
    torch.manual_seed(0)
    return PARTS.factory("mixer", name)(PARTS.config("mixer", name, params), MixerBuild(d_model, parts=PARTS))


@pytest.mark.parametrize("name", ["mamba2", "gated_deltanet"])
def test_decays_start_in_their_ranges_and_survive_copies(name: str) -> None:
    mixer = plain(name, {"heads": 64, "dt_min": 0.002, "dt_max": 0.05, "a_min": 2.0, "a_max": 5.0})
    for each in (mixer, copy.deepcopy(mixer), copy.deepcopy(nn.Sequential(mixer))[0]):
        reader = each.readers[0]
        steps, rates = F.softplus(reader.dt_bias), reader.A_log.exp()
        assert 0.002 * 0.999 <= steps.min() < 0.005
        assert 0.02 < steps.max() <= 0.05 * 1.001
        assert 2.0 * 0.999 <= rates.min() < 2.5
        assert 4.5 < rates.max() <= 5.0 * 1.001


@pytest.mark.parametrize("key", ALL)
def test_marks_name_parameters_and_survive_copies(key: str) -> None:
    mixer = case(key)
    for each in (mixer, copy.deepcopy(mixer)):
        names = dict(each.named_parameters())
        assert each.no_weight_decay() <= set(names)
        assert each.output_parameters() <= set(names)
        assert all(names[name].dim() >= 2 for name in each.output_parameters())
        spared = {n for n, p in names.items() if p.dim() < 2}
        assert each.no_weight_decay() == spared


@pytest.mark.parametrize("key", ALL)
def test_projections_start_at_two_hundredths(key: str) -> None:
    mixer = plain(*ALL[key])
    for name, parameter in mixer.named_parameters():
        if parameter.dim() >= 2 and name != "conv_CW" and parameter.numel() > 500:
            assert parameter.detach().std().item() == pytest.approx(0.02, rel=0.15), name


@pytest.mark.parametrize("key", ALL)
def test_gradients_reach_every_parameter(key: str) -> None:
    mixer, x = case(key), random_input(3, 40)
    y, _ = mixer(x, with_mode(mixer, context(3, 40, phase="train")), None)
    y.square().sum().backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("key", ALL)
def test_a_zeroed_output_matrix_silences_the_mixer(key: str) -> None:
    mixer = case(key)
    with torch.no_grad():
        for name in mixer.output_parameters():
            mixer.get_parameter(name).zero_()
        y, _ = mixer(random_input(1, 9), with_mode(mixer, context(1, 9)), None)
    assert not y.any()


@pytest.mark.parametrize("key", SEQUENCE)
def test_inference_changes_no_parameter(key: str) -> None:
    mixer, x = case(key), random_input(2, 24)
    before = copy.deepcopy(mixer.state_dict())
    at = with_mode(mixer, context(2, 24))
    with torch.inference_mode():
        state = mixer.init_state(2, dtype=x.dtype)
        for t in range(24):
            _, state = mixer(x[:, t : t + 1], at.slice(t, t + 1).at(phase="decode"), state)
    for name, tensor in mixer.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("name", ["mamba2", "gated_deltanet"])
def test_extreme_decays_stay_finite(name: str) -> None:
    mixer = case(name, dtype=torch.float32)
    reader = mixer.readers[0]
    with torch.no_grad():
        # Log-decays of about 0, -80 and in between, head by head.
        reader.A_log.copy_(torch.tensor([-40.0, 0.0, 2.0, 4.0]))
        reader.dt_bias.copy_(torch.tensor([20.0, -20.0, 5.0, 1.5]))
    x = random_input(1, 130).float().requires_grad_()
    y, _ = mixer(x, context(1, 130, phase="train"), None)
    y.square().mean().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in mixer.parameters())
    assert x.grad is not None
    assert x.grad.isfinite().all()
