"""The distilled router: the published network, its teacher's threshold and rate, and no part in training."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Shape, Work
from crossbreed.plugins.routers.configs import DistilledConfig, EntropyGateConfig, LearnedConfig
from crossbreed.plugins.routers.distilled import Distilled
from crossbreed.plugins.routers.entropy_gate import EntropyGate
from crossbreed.plugins.routers.learned import Learned
from tests.plugins.routers.pieces import context

D = 12
BUILD = RouterBuild("0.0.gate", "gate", d_model=D, vocab=23, choices=2)


def student(**settings):
    torch.manual_seed(1)
    return Distilled(DistilledConfig(**settings), BUILD)


def teacher(**settings):
    return EntropyGate(EntropyGateConfig(**settings), BUILD)


def curved(h):
    """A smooth signal in 0..1 that a line cannot follow."""
    return torch.sigmoid(h[..., 0] * h[..., 1] + h[..., 2])


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def perturbed(router):
    with torch.no_grad():
        for p in router.parameters():
            p.add_(0.3 * noise(*p.shape, seed=p.numel()))
    return router


def test_it_is_the_published_network_in_the_teachers_threshold():
    r = perturbed(student(hidden=5, kappa=0.5, mu_init=0.1, sigma_init=0.2)).double()
    h = noise(3, 7, D).double()
    z = h @ r.inner.weight.T + r.inner.bias
    by_hand = (z * torch.sigmoid(z)) @ r.outer.weight[0] + r.outer.bias + h @ r.skip.weight[0]
    torch.testing.assert_close(r.signal(h, context(3, 7)), by_hand)
    decision, _ = r(h, context(3, 7), None)
    assert torch.equal(decision.choice_BT, (by_hand > 0.1 + 0.5 * 0.2).long())
    assert decision.choice_BT.unique().tolist() == [0, 1]
    assert student().config.hidden == 512


def test_it_computes_in_fp32_whatever_the_stream_and_the_autocast():
    r, h = perturbed(student()), noise(2, 9, D).bfloat16()
    exact = r.signal(h, context(2, 9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = r.signal(h, context(2, 9))
    assert mixed.dtype == torch.float32
    assert torch.equal(exact, mixed)


def test_learning_follows_the_signal_and_fires_as_often():
    gate = teacher(mu_init=0.55, sigma_init=0.1)
    h_ND = noise(4000, D)
    calls = []
    r = student(hidden=64)
    offset = r.learn(gate, h_ND, curved(h_ND), steps=400, progress=lambda: calls.append(1))
    assert len(calls) == 400
    assert (r.mu, r.sigma) == (gate.mu, gate.sigma)
    rate = (curved(h_ND) > gate.tau()).double().mean()
    assert (r.predicted(h_ND) > r.tau()).double().mean() == pytest.approx(rate.item(), abs=1.5 / 4000)
    fresh = noise(4000, D, seed=9)
    error = (r.predicted(fresh) - offset - curved(fresh)).square().mean()
    assert error < 0.2 * curved(fresh).var()
    fires = r(fresh[None], context(1, 4000), None)[0].choice_BT[0]
    assert (fires == (curved(fresh) > gate.tau()).long()).double().mean() > 0.85


def test_equal_seeds_fit_equally():
    fits = [student(hidden=8) for _ in range(2)]
    for r in fits:
        r.learn(teacher(), noise(500, D), curved(noise(500, D)), steps=20, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(*(r.parameters() for r in fits), strict=True))


@pytest.mark.parametrize(("mu", "fires"), [(0.99, 0), (0.0, 300)])
def test_a_gate_that_is_always_shut_or_open_stays_so(mu, fires):
    h_ND = noise(300, D)
    r = student(hidden=8)
    r.learn(teacher(mu_init=mu, sigma_init=0.0), h_ND, 0.2 + 0.5 * curved(h_ND), steps=10)
    assert r(h_ND[None], context(1, 300), None)[0].choice_BT.sum() == fires


def test_training_is_refused():
    with pytest.raises(ConfigError, match=r"takes no part in training.*fit-router"):
        student()(noise(1, 3, D), context(1, 3, phase="train"), None)


def test_only_a_threshold_on_entropy_can_be_its_teacher():
    other = Learned(LearnedConfig(), BUILD)
    assert other.student() is None
    with pytest.raises(ConfigError, match="not from Learned"):
        student().learn(other, noise(5, D), noise(5), steps=1)
    with pytest.raises(ConfigError, match="was given no token"):
        student().learn(teacher(), noise(0, D), noise(0), steps=1)


def test_the_gate_names_it_with_its_own_threshold_and_not_at_mode():
    name, settings = teacher(kappa=0.7, threshold="fixed", segment=4).student()
    assert name == "distilled"
    config = DistilledConfig(**settings)
    assert (config.kappa, config.threshold, config.segment, config.hidden) == (0.7, "fixed", 4, 512)
    mode = RouterBuild("mode", "mode", d_model=D, vocab=23, choices=2)
    assert EntropyGate(EntropyGateConfig(), mode).student() is None


def test_it_costs_its_two_products_instead_of_the_probe():
    cost = Distilled.cost(DistilledConfig(hidden=5), BUILD, Shape(tokens=8))
    flops = 2 * (5 * D + 5 + D)
    # Trained is the gate that it is fitted to, whose probe is one product with the head, forward only.
    probe = 2 * D * BUILD.vocab
    assert cost.write == Work(flops, probe, flops, probe)
    assert cost.parameters == sum(p.numel() for p in student(hidden=5).parameters())
    assert cost.active_parameters == cost.parameters
