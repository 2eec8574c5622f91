"""The learned router keeps its rate, never starves, and sends a gradient to every choice."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from crossbreed.core.contracts.router import RouterBuild
from crossbreed.core.ledger import Shape
from crossbreed.plugins.routers.configs import LearnedConfig
from crossbreed.plugins.routers.learned import Learned
from tests.plugins.routers.pieces import context

D = 24


def build(choices=2, kind="gate"):
    return RouterBuild("0.0.gate", kind, d_model=D, vocab=23, choices=choices)


def router(choices=2, seed=0, **settings):
    torch.manual_seed(seed)
    return Learned(LearnedConfig(**settings), build(choices))


def test_weights_are_one_hot_forward_and_soft_backward():
    r = router(choices=3, temperature=0.5)
    h_BTD = torch.randn(2, 7, D)
    decision, _ = r(h_BTD, context(2, 7, phase="train"), None)
    assert torch.allclose(decision.weight_BTN, F.one_hot(decision.choice_BT, 3).float(), atol=1e-7)
    value_N = torch.tensor([0.3, -1.0, 2.0])
    (got,) = torch.autograd.grad((decision.weight_BTN * value_N).sum(), r.weight)
    soft_BTN = (r.scores(h_BTD) / 0.5).softmax(-1)
    (expected,) = torch.autograd.grad((soft_BTN * value_N).sum(), r.weight)
    assert torch.allclose(got, expected, atol=1e-6)
    assert got.norm() > 0


def test_evaluation_is_a_plain_argmax_without_weights_or_losses():
    r, h_BTD = router(choices=3), torch.randn(2, 7, D)
    decision, _ = r(h_BTD, context(2, 7), None)
    assert torch.equal(decision.choice_BT, r.scores(h_BTD).argmax(-1))
    assert decision.weight_BTN is None
    assert not decision.losses


def test_each_token_decides_alone():
    r, h_BTD = router(), torch.randn(2, 64, D)
    before = r(h_BTD, context(2, 64), None)[0].choice_BT
    for prefix in (1, 3, 7, 15, 31, 32, 63):
        changed = h_BTD.clone()
        changed[:, prefix:] = torch.randn(2, 64 - prefix, D)
        after = r(changed, context(2, 64), None)[0].choice_BT
        assert torch.equal(before[:, :prefix], after[:, :prefix])


@pytest.mark.parametrize("scale", [0.02, 1.0, 50.0])
@pytest.mark.parametrize("target", [0.1, 0.4, 0.8])
def test_the_first_hard_rate_is_the_target_at_any_input_scale(target, scale):
    h_BTD = scale * torch.randn(50, 60, D, generator=torch.Generator().manual_seed(1))
    rates = [
        router(seed=seed, target_rate=target)(h_BTD, context(50, 60), None)[0].choice_BT.double().mean()
        for seed in range(12)
    ]
    assert abs(torch.stack(rates).mean() - target) < 0.05


def test_the_loss_is_the_squared_distance_of_counted_hard_choices():
    r = router(target_rate=0.3, loss_weight=0.5)
    mask_BT = torch.rand(4, 9, generator=torch.Generator().manual_seed(2)) < 0.6
    c = context(4, 9, phase="train", loss_mask_BT=mask_BT, valid_BT=torch.arange(9).expand(4, 9) < 8)
    decision, _ = r(torch.randn(4, 9, D), c, None)
    share = decision.choice_BT[mask_BT & c.valid_BT].double().mean().item()
    assert decision.losses["rate"].item() == pytest.approx(0.5 * (share - 0.3) ** 2, abs=1e-6)


def test_nothing_counted_costs_nothing():
    c = context(2, 5, phase="train", loss_mask_BT=torch.zeros(2, 5, dtype=torch.bool))
    loss = router()(torch.randn(2, 5, D), c, None)[0].losses["rate"]
    assert loss.item() == 0.0
    loss.backward()


def test_a_segments_loss_counts_the_choice_of_its_first_token():
    r = router(target_rate=0.5, loss_weight=1.0, segment=4)
    h_BTD = torch.randn(6, 10, D)
    decision, _ = r(h_BTD, context(6, 10, phase="train"), None)
    held_BT = decision.choice_BT[:, [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]]
    expected = (held_BT.double().mean().item() - 0.5) ** 2
    assert decision.losses["rate"].item() == pytest.approx(expected, abs=1e-6)
    assert held_BT.ne(decision.choice_BT).any()
    assert r.segment_length() == 4


def test_training_reaches_the_target_rate_and_keeps_every_choice_alive():
    """Identical branches give the task no reason to prefer one: only the rate loss and the gradient act."""
    torch.set_num_threads(1)
    for choices, target in ((2, 0.3), (3, 0.5)):
        r = router(choices=choices, target_rate=target, loss_weight=1.0)
        optimiser = torch.optim.AdamW(r.parameters(), lr=3e-3)
        generator = torch.Generator().manual_seed(3)
        for step in range(200):
            h_BTD = torch.randn(8, 16, D, generator=generator)
            decision, _ = r(h_BTD, context(8, 16, phase="train", step=step), None)
            branch_BTD = torch.tanh(h_BTD)
            mixed = sum(decision.weight_BTN[..., n : n + 1] * branch_BTD for n in range(choices))
            objective = (mixed - h_BTD).square().mean() + sum(decision.losses.values())
            optimiser.zero_grad()
            objective.backward()
            assert torch.isfinite(r.weight.grad).all()
            assert r.weight.grad.norm() > 0
            optimiser.step()
        choice_BT = r(torch.randn(64, 64, D, generator=generator), context(64, 64), None)[0].choice_BT
        load_N = torch.bincount(choice_BT.flatten(), minlength=choices) / choice_BT.numel()
        assert (load_N > 0.1).all(), load_N
        assert abs(1 - load_N[0] - target) < 0.1


def test_scores_stay_in_fp32_under_autocast():
    r, h_BTD = router(), torch.randn(2, 5, D)
    exact = r.scores(h_BTD.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = r.scores(h_BTD.bfloat16())
    assert mixed.dtype == torch.float32
    assert torch.equal(exact, mixed)
    assert r(h_BTD.double(), context(2, 5, phase="train"), None)[0].weight_BTN.dtype == torch.float64


@pytest.mark.parametrize("choices", [2, 4])
def test_cost_counts_the_parameters_that_exist(choices):
    r = router(choices=choices)
    cost = Learned.cost(r.config, build(choices), Shape(tokens=8))
    assert cost.parameters == sum(p.numel() for p in r.parameters())
    assert cost.write.forward == 2 * D * (choices - 1)
    assert cost.write.training == 3 * cost.write.forward
    assert sum(Learned.rates(r.config, "mode", choices)) == pytest.approx(1)
    assert Learned.rates(r.config, "mode", choices)[0] == pytest.approx(0.6)


@pytest.mark.parametrize(
    "settings", [{"target_rate": 1.2}, {"temperature": 0}, {"segment": 0}, {"loss_weight": -1}, {"rate": 0.2}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        LearnedConfig(**settings)
