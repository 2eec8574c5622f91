"""The entropy gate's rule at gate and halt, as AMOR publishes it."""

from __future__ import annotations

import math
import warnings
from copy import deepcopy

import pytest
import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Shape, Work
from crossbreed.plugins.routers.configs import EntropyGateConfig
from crossbreed.plugins.routers.entropy_gate import LOOK_EVERY, EntropyGate, summary
from tests.plugins.routers.gated import build, noise, router
from tests.plugins.routers.pieces import context, entropies

PUBLISHED = {"momentum": 0.99, "warm_start": False}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_of_a_shared_batch_it_thresholds_by_the_rows_of_all_devices_or_by_its_own():
    own_BT, other_BT = noise(2, 5), 0.5 + noise(2, 5, seed=1)
    c = context(2, 5, phase="train").at(gather=lambda x_BT: torch.cat((x_BT, other_BT.to(x_BT.dtype))))
    for ranks, seen in (("whole", torch.cat((own_BT, other_BT))), ("mean", own_BT), ("local", own_BT)):
        r = router(momentum=0.0, kappa=0.0, ranks=ranks).double()
        decision, _ = r(entropies(own_BT), c, None)
        median = seen.flatten().median()
        assert torch.equal(decision.choice_BT, (own_BT > median).long())
        assert decision.statistics["median"] == median


def test_of_a_shared_batch_it_commits_what_the_first_device_saw_or_the_mean():
    calls = [
        {"median": torch.tensor(m), "std": torch.tensor(0.1), "count": torch.tensor(5)} for m in (0.2, 0.6)
    ]
    shared = [{**call, "part": part} for part, call in enumerate(calls)]
    for ranks, mu in (("local", 0.2), ("mean", 0.4)):
        r = router(momentum=0.0, ranks=ranks)
        r.after_step(shared)
        assert r.mu.item() == pytest.approx(mu)


def test_training_thresholds_with_the_averaged_statistics_as_published():
    r = router(**PUBLISHED).double()
    h_BT = noise(3, 7)
    decision, _ = r(entropies(h_BT), context(3, 7, phase="train"), None)
    mu = 0.99 * 0.3 + 0.01 * sorted(h_BT.flatten().tolist())[10]
    sigma = 0.99 * 0.1 + 0.01 * h_BT.std().item()
    assert torch.equal(decision.choice_BT, (h_BT > mu + 0.2 * sigma).long())
    # Nothing is committed by a call.
    assert r.mu.item() == pytest.approx(0.3)
    r.after_step([decision.statistics])
    assert r.mu.item() == pytest.approx(mu, abs=1e-7)
    assert r.sigma.item() == pytest.approx(sigma, abs=1e-7)


def test_a_step_commits_once_with_the_mean_over_its_calls():
    r = router(**PUBLISHED).double()
    calls = [noise(2, 5, seed=s) for s in range(3)]
    statistics = [r(entropies(h), context(2, 5, phase="train"), None)[0].statistics for h in calls]
    r.after_step(statistics)
    median = sum(h.flatten().median().item() for h in calls) / 3
    assert r.mu.item() == pytest.approx(0.99 * 0.3 + 0.01 * median, abs=1e-7)
    assert r.steps.item() == 1


def test_a_warm_start_takes_the_first_step_whole_and_averages_after_it():
    r = router(momentum=0.9).double()
    first, second = noise(2, 5, seed=1), noise(2, 5, seed=2)
    r.after_step([r(entropies(first), context(2, 5, phase="train"), None)[0].statistics])
    assert r.mu.item() == pytest.approx(first.flatten().median().item(), abs=1e-7)
    r.after_step([r(entropies(second), context(2, 5, phase="train"), None)[0].statistics])
    expected = 0.9 * first.flatten().median().item() + 0.1 * second.flatten().median().item()
    assert r.mu.item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("kappa", "rate"), [(0.0, 0.5), (0.2, 0.42), (0.5, 0.31), (0.77, 0.22), (1.0, 0.16)])
def test_the_rate_on_gaussian_entropies_is_the_nominal_one(kappa, rate):
    r = router(kappa=kappa).double()
    h_BT = 0.5 + 0.1 * normal(100, 200)
    choice_BT = r(entropies(h_BT), context(100, 200, phase="train"), None)[0].choice_BT
    assert choice_BT.double().mean().item() == pytest.approx(rate, abs=0.01)
    assert EntropyGate.rates(r.config, "gate", 2)[1] == pytest.approx(rate, abs=0.005)


def test_only_counted_tokens_move_the_statistics():
    h_BT = noise(4, 9)
    valid_BT = torch.arange(9).expand(4, 9) < 7
    asked_BT, mask_BT = noise(4, 9, seed=5) < 0.8, noise(4, 9, seed=6) < 0.8
    c = context(4, 9, phase="train", valid_BT=valid_BT, asked_BT=asked_BT & valid_BT, loss_mask_BT=mask_BT)
    counted = h_BT[valid_BT & asked_BT & mask_BT]
    statistics = router().double()(entropies(h_BT), c, None)[0].statistics
    assert statistics["count"] == counted.numel()
    assert statistics["median"] == counted.median()
    assert statistics["std"].item() == pytest.approx(counted.std().item(), abs=1e-12)


def test_calls_that_counted_nothing_do_not_move_anything():
    r = router().double()
    nobody = torch.zeros(2, 5, dtype=torch.bool)
    decision, _ = r(entropies(noise(2, 5)), context(2, 5, phase="train", asked_BT=nobody), None)
    assert torch.equal(decision.choice_BT, (noise(2, 5) > 0.3 + 0.2 * 0.1).long())
    r.after_step([decision.statistics])
    assert (r.mu.item(), r.steps.item()) == (pytest.approx(0.3), 0)
    some = r(entropies(noise(2, 5)), context(2, 5, phase="train"), None)[0].statistics
    r.after_step([decision.statistics, some])
    assert r.mu.item() == pytest.approx(some["median"].item(), abs=1e-7)


def test_a_threshold_without_data_stays_at_its_starting_values():
    r = router(momentum=1, warm_start=False, mu_init=0.5, sigma_init=0.25, kappa=1).double()
    h_BT = noise(4, 9)
    for _ in range(3):
        decision, _ = r(entropies(h_BT), context(4, 9, phase="train"), None)
        r.after_step([decision.statistics])
        assert torch.equal(decision.choice_BT, (h_BT > 0.75).long())
    assert (r.mu.item(), r.sigma.item()) == (0.5, 0.25)


def test_one_counted_token_has_no_deviation():
    found = summary(torch.tensor([[0.4, 0.9]]), torch.tensor([[False, True]]))
    assert {k: v.item() for k, v in found.items()} == {
        "median": pytest.approx(0.9),
        "std": 0.0,
        "count": 1,
    }


def test_evaluation_is_frozen_and_sees_no_other_token():
    r = router(mu_init=0.5, sigma_init=0.1).double()
    h_BT = noise(2, 64)
    before = r(entropies(h_BT), context(2, 64), None)[0]
    assert torch.equal(before.choice_BT, (h_BT > r.mu + 0.2 * r.sigma).long())
    assert not before.statistics
    for prefix in (1, 3, 7, 15, 31, 32, 63):
        changed = h_BT.clone()
        changed[:, prefix:] = 1 - changed[:, prefix:]
        after = r(entropies(changed), context(2, 64), None)[0].choice_BT
        assert torch.equal(after[:, :prefix], before.choice_BT[:, :prefix])
        assert not torch.equal(after[:, prefix:], before.choice_BT[:, prefix:])


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_short_rows_are_not_rounded_up_to_one(tokens):
    r = router()
    low = torch.full((3, tokens), 0.1)
    assert r(entropies(low), context(3, tokens), None)[0].choice_BT.sum() == 0


def test_the_comparison_is_strict():
    r = router(mu_init=0.5, kappa=0.0)
    assert r(entropies(torch.full((1, 3), 0.5)), context(1, 3), None)[0].choice_BT.sum() == 0


def test_a_checkpoint_carries_the_threshold():
    r = router()
    r.after_step([r(entropies(noise(2, 9).float()), context(2, 9, phase="train"), None)[0].statistics])
    fresh = router()
    fresh.load_state_dict(deepcopy(r.state_dict()))
    assert (fresh.mu, fresh.sigma, fresh.steps) == (r.mu, r.sigma, r.steps)
    assert r.mu != 0.3


def test_a_fixed_threshold_stands_a_set_distance_above_the_running_median():
    r = router(threshold="fixed", mu_init=0.5, sigma_init=0.2).double()
    h_BT = noise(40, 50)
    assert torch.equal(r(entropies(h_BT), context(40, 50), None)[0].choice_BT, (h_BT > 0.53).long())
    trained, _ = r(entropies(h_BT), context(40, 50, phase="train"), None)
    assert torch.equal(trained.choice_BT, (h_BT > h_BT.flatten().median() + 0.03).long())
    # Nominally entropies are Gaussian with the initial deviation: P(z > 0.03 / 0.2).
    assert EntropyGate.rates(r.config, "gate", 2)[1] == pytest.approx(0.4404, abs=1e-4)


def test_tau_above_one_is_warned_of_once_and_held_back_only_on_request():
    h_BT = 0.9 + 0.09 * noise(20, 30)
    c = context(20, 30, phase="train")
    r = router(kappa=8.0)
    with pytest.warns(RuntimeWarning, match=r"'0\.0\.gate': tau is 1\.\d+.*nothing fires; lower kappa \(8\)"):
        r.after_step([r(entropies(h_BT.float()), c, None)[0].statistics])
    assert r.tau() > 1
    assert r(entropies(torch.ones(1, 9)), context(1, 9), None)[0].choice_BT.sum() == 0
    held = router(kappa=8.0, tau_ceiling=0.95)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2 * LOOK_EVERY):
            for each in (r, held):
                each.after_step([each(entropies(h_BT.float()), c, None)[0].statistics])
    assert held.tau() == pytest.approx(0.95)
    assert torch.equal(held(entropies(h_BT), context(20, 30), None)[0].choice_BT, (h_BT > held.tau()).long())


def test_a_threshold_that_rises_past_one_later_is_noticed():
    r = router(kappa=1.0)
    calm, wild = (torch.tensor([[m - s, m, m + s] * 9]) for m, s in ((0.3, 0.01), (0.95, 0.3)))

    def train():
        for h_BT in [calm] * 3 + [wild] * LOOK_EVERY:
            r.after_step([r(entropies(h_BT), context(1, 27, phase="train"), None)[0].statistics])

    with pytest.warns(RuntimeWarning, match="nothing fires"):
        train()


def test_a_closed_recorder_decides_the_same_and_leaves_nothing_behind():
    r = router(**PUBLISHED).double()
    h_BTD = entropies(noise(3, 7))
    first, again = (
        r(h_BTD, context(3, 7, phase="train", recorder=Recorder(open=o)), None)[0] for o in (True, False)
    )
    assert torch.equal(first.choice_BT, again.choice_BT)
    assert (r.mu.item(), r.steps.item()) == (pytest.approx(0.3), 0)


def test_no_gradient_flows_through_the_gate():
    h_BTD = entropies(noise(2, 5)).requires_grad_()
    decision, _ = router().double()(h_BTD, context(2, 5, phase="train"), None)
    assert decision.weight_BTN is None
    assert not any(v.requires_grad for v in decision.statistics.values())


@pytest.mark.parametrize(("segment", "expected"), [(None, None), (1, None), (6, 6)])
def test_granularity_at_gate(segment, expected):
    assert router(segment=segment).segment_length() == expected


def test_the_probe_costs_one_forward_product_with_the_head_and_reads_its_weights():
    cost = EntropyGate.cost(EntropyGateConfig(), build(), Shape(tokens=8))
    assert cost.write == Work(92, 92, 92, 92, weights=46)
    assert cost.parameters == sum(p.numel() for p in router().parameters()) == 0


def test_three_choices_are_refused():
    with pytest.raises(ConfigError, match="tells 2 choices apart, got 3"):
        EntropyGate(EntropyGateConfig(), build(choices=3))


@pytest.mark.parametrize(
    "settings",
    [
        {"momentum": 1.01},
        {"segment": 0},
        {"mu_init": 1.5},
        {"kappa": math.inf},
        {"first_choice": 2},
        {"tau_ceiling": 1.0},
        {"threshold": "mean"},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        EntropyGateConfig(**settings)
