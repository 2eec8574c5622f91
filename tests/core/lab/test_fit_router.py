"""Fitting routers: the students' model is the trained one but for its routers, judged on rows it was not fitted on."""

from __future__ import annotations

import math

import pytest
import torch

from crossbreed.core.contracts.task import IGNORE
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Router
from crossbreed.core.lab.evaluate import evaluate
from crossbreed.core.lab.fit_router import Share, fit_routers, spearman

GATE = {"name": "entropy_gate", "params": {"warm_start": True}}


@pytest.fixture
def trained(build, genome, task):
    """A gated model with its thresholds in the middle of the entropies it has."""
    model = build(genome(gate=GATE)).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    (site,) = model.routed_sites()
    seen = []
    hook = site.register_forward_hook(lambda m, args, out: seen.append(args[1].entropy(args[0])))
    evaluate(model, task, 8)
    hook.remove()
    h = torch.cat([x.flatten() for x in seen])
    site.router.mu.copy_(h.median())
    site.router.sigma.copy_(h.std())
    return model


def test_students_decide_like_their_teachers_on_fresh_rows(trained, task, parts):
    before = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    calls = []
    found = fit_routers(trained, task, parts, steps=300, progress=lambda *call: calls.append(call))
    (site,) = found.sites
    assert (site.site, site.teacher, site.student) == ("0.1.0.gate", "entropy_gate", "distilled")
    assert site.fitted_tokens == site.tokens == 12 * 12
    assert 0.2 < site.native_rate < 0.6
    assert site.fitted_rate == pytest.approx(site.native_rate, abs=0.08)
    assert site.rank_correlation > 0.9
    assert site.agreement > 0.85
    assert calls == [("fitting 0.1.0.gate", i + 1, 300) for i in range(300)]
    # The trained model is as it was.
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.state_dict().items())


def test_the_new_model_is_the_old_one_but_for_its_router(trained, task, parts):
    found = fit_routers(trained, task, parts, steps=5)
    gate = found.architecture.stages[0].blocks[1].gate
    assert gate.name == "distilled"
    assert gate.params["kappa"] == 0.2
    new = found.model.state_dict()
    kept = [name for name in trained.state_dict() if ".gate.router." not in name]
    assert len(kept) > 5
    assert all(torch.equal(new[name], trained.state_dict()[name]) for name in kept)
    (old_site,), (new_site,) = trained.routed_sites(), found.model.routed_sites()
    assert new_site.router.tau() == old_site.router.tau()
    # Under forced decisions the two are one model.
    tokens = next(iter(task.evaluation(4))).tokens_BT
    forced = {"0.1.gate": (torch.arange(12) % 2).expand(4, 12)}
    a, b = (m(tokens, m.context(tokens, forced=forced))[0] for m in (trained, found.model))
    assert torch.equal(a, b)


def test_both_models_are_judged_on_the_rows_between_those_fitted_on(trained, task, parts):
    found = fit_routers(trained, task, parts, steps=5, batch=5)
    assert found.native.rows == found.fitted.rows == 12
    assert found.native.totals == evaluate(trained, Share(task, 1), 5).totals
    assert found.native.rates["0.1.0.gate"][1] == pytest.approx(found.sites[0].native_rate)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 24])
def test_shares_part_the_rows_whatever_the_batch(task, size):
    whole = torch.cat([b.tokens_BT for b in task.evaluation(24)])
    for first in (0, 1):
        rows = torch.cat([b.tokens_BT for b in Share(task, first).evaluation(size)])
        assert torch.equal(rows, whole[first::2])
    assert all((b.labels_BT != IGNORE).sum() == 2 * len(b.labels_BT) for b in Share(task, 1).evaluation(size))


def test_fewer_tokens_may_be_fitted_on(trained, task, parts):
    (site,) = fit_routers(trained, task, parts, steps=5, tokens=30, batch=1).sites
    assert site.fitted_tokens == 30


def test_a_model_without_such_routers_is_refused(build, genome, task, parts):
    with pytest.raises(
        ConfigError, match="no router of this model has a student to fit; its routers: learned"
    ):
        fit_routers(build(genome(gate={"name": "learned"})), task, parts)


def test_rank_correlation_is_that_of_ranks_with_ties_shared():
    a = torch.tensor([1.0, 2.0, 2.0, 5.0, 9.0])
    assert spearman(a, a.exp()) == pytest.approx(1.0)
    assert spearman(a, -(a**3)) == pytest.approx(-1.0)
    # Ranks 1, 2.5, 2.5, 4 against 2, 1, 4, 3: deviations -1.5, 0, 0, 1.5 and -0.5, -1.5, 1.5, 0.5.
    b = torch.tensor([0.2, 0.1, 0.4, 0.3])
    assert spearman(a[:4], b) == pytest.approx(1.5 / math.sqrt(4.5 * 5.0))
    assert math.isnan(spearman(torch.ones(4), b))


def test_routers_are_replaced_at_the_sites_named_and_nowhere_else(build, genome):
    architecture = build(genome(gate=GATE)).architecture
    other = architecture.with_routers({"0.1.gate": Router(name="learned")})
    assert other.stages[0].blocks[1].gate.name == "learned"
    assert other.stages[0].blocks[0] == architecture.stages[0].blocks[0]
    assert architecture.with_routers({}) == architecture
