"""A scheduled site follows its schedule outside training or in it, and its router in the other phase."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.task import Batch
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import ATTENTION, SWIGLU, architecture, block, gate, multi
from tests.support.passes import whole_pass

ROUTERS = {
    "segment_random": {"segment": 4, "probability": 0.5},
    "learned": {"segment": 4},
    "entropy_gate": {"segment": 4},
}


def scheduled(name: str, evaluate):
    return architecture(
        {"blocks": [block(multi("mamba2", "attention")), block(SWIGLU)] * 2},
        mode_router=gate(name, **ROUTERS[name], evaluate=evaluate),
    )


UNALIGNED = [(0, 0), (5, 1), (11, 0), (17, 1)]
BY_HAND = [0] * 5 + [1] * 6 + [0] * 6 + [1] * 2


@pytest.mark.parametrize("name", ROUTERS)
def test_a_schedule_switches_between_segments_edges_too(build, tokens, name):
    model = build(scheduled(name, UNALIGNED))
    h_BTD, taken = whole_pass(model, tokens)
    assert taken["mode"].tolist() == [BY_HAND] * 3
    # The same as forcing the choices on a model without a schedule.
    free = build(scheduled(name, "same"))
    forced, _ = whole_pass(free, tokens, forced={"mode": torch.tensor([BY_HAND] * 3)})
    torch.testing.assert_close(h_BTD, forced, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("choice", [0, 1])
def test_one_mode_for_every_token(build, tokens, name, choice):
    _, taken = whole_pass(build(scheduled(name, choice)), tokens)
    assert taken["mode"].unique().tolist() == [choice]


def test_training_goes_on_under_the_router(build, tokens):
    model = build(scheduled("segment_random", 1)).train()
    _, taken = whole_pass(model, tokens, phase="train", labels_BT=tokens)
    assert taken["mode"].unique().tolist() == [0, 1]
    same = build(scheduled("segment_random", "same")).train()
    _, expected = whole_pass(same, tokens, phase="train", labels_BT=tokens)
    assert torch.equal(taken["mode"], expected["mode"])


GATES = {"segment_random": {"segment": 4, "probability": 0.5}, "learned": {}, "entropy_gate": {}}


def gated(name: str, train):
    return two_blocks(gate=gate(name, **GATES[name], train=train))


def two_blocks(**fields):
    # Unequal norms: without its gate, too, the second block is one of its own.
    return architecture({"blocks": [block(ATTENTION), block(SWIGLU, norm_eps=1e-5, **fields)]})


class TestTraining:
    """A gate that is open in training and decides in use (amor.md section 9, C9), at every site and any schedule."""

    def trained(self, model, tokens):
        recorder = Recorder()
        context = model.context(tokens, phase="train", labels_BT=tokens, recorder=recorder)
        loss = model.loss(Batch(tokens, tokens), context)
        return loss, {site: facts["counts"] for site, facts in recorder.records if "counts" in facts}

    @pytest.mark.parametrize("name", GATES)
    def test_every_token_reads_in_training_and_the_gate_decides_in_use(self, build, tokens, name):
        model = build(gated(name, 1))
        loss, counts = self.trained(model, tokens)
        assert counts["0.1.0.gate"].tolist() == [0, tokens.numel()]
        # The same pass as without a gate: nothing is weighed either.
        plain = build(two_blocks())
        assert plain.load_state_dict(model.state_dict(), strict=False).missing_keys == []
        assert loss.loss_nats == self.trained(plain, tokens)[0].loss_nats
        same = build(gated(name, "same"))
        same.load_state_dict(model.state_dict())
        used, decided = whole_pass(model, tokens)
        expected, wanted = whole_pass(same, tokens)
        assert torch.equal(used, expected)
        assert torch.equal(decided["0.1.0.gate"], wanted["0.1.0.gate"])

    @pytest.mark.parametrize("train", [0, 1])
    def test_an_entropy_gate_goes_on_learning_its_threshold(self, build, tokens, train):
        found = []
        for how in (train, "same"):
            model = build(gated("entropy_gate", how))
            self.trained(model, tokens)
            model.after_step()
            (site,) = model.routed_sites()
            found.append((site.router.mu.item(), site.router.sigma.item()))
        assert found[0] == found[1] != (pytest.approx(0.3), pytest.approx(0.1))

    def test_a_learned_gate_goes_on_learning_its_rate_alone(self, build, tokens):
        model = build(gated("learned", 1))
        self.trained(model, tokens)[0].objective.backward()
        (site,) = model.routed_sites()
        assert site.router.bias.grad.abs().sum() > 0
        model.zero_grad()
        loss, _ = self.trained(model, tokens)
        (loss.objective - sum(loss.auxiliary.values())).backward()
        assert not site.router.bias.grad.any()

    def test_a_model_trained_in_one_mode_or_by_a_schedule(self, build, tokens):
        genome = architecture(
            {"blocks": [block(multi("mamba2", "attention")), block(SWIGLU)]},
            mode_router=gate("segment_random", segment=4, train=UNALIGNED),
        )
        _, counts = self.trained(build(genome), tokens)
        assert counts["mode"].tolist() == [3 * BY_HAND.count(0), 3 * BY_HAND.count(1)]

    @pytest.mark.parametrize("name", GATES)
    def test_training_is_charged_as_it_trains_and_use_at_the_gates_rate(self, registry, name):
        def estimate(train, rates=None):
            costs = registry.factory("cost", "analytic")(None, registry)
            return costs.estimate(registry.canonical(gated(name, train)), Shape(1, 64), rates=rates)

        same, always, never = estimate("same"), estimate(1), estimate(0)
        # What SwiGLU computes of a token that reads: three matrices, forward and backward.
        swiglu = 3 * 2 * 3 * 16 * 20
        assert always.training_flops_per_token - never.training_flops_per_token == swiglu
        for ledger in (always, never):
            assert ledger.prefill_flops_per_token == same.prefill_flops_per_token
            assert ledger.decode_flops_per_token == same.decode_flops_per_token
            assert ledger.rates == same.rates
        realised = {"0.1.gate": (0.75, 0.25)}
        assert estimate(1, realised).training_flops_per_token == always.training_flops_per_token
        assert (
            estimate(1, realised).decode_flops_per_token
            < estimate(1, {"0.1.gate": (0.0, 1.0)}).decode_flops_per_token
        )

    def test_what_training_draws_at_mode_is_charged_there(self, registry):
        """A mixer that skips in training, under an entropy gate that trains under draws at a rate of its own."""
        cls = registry.factory("router", "entropy_gate")
        config = registry.config("router", "entropy_gate", {"train_rate": 0.25})
        assert cls.training_rates(config, "mode", 2) == (0.75, 0.25)
        assert cls.training_rates(config, "gate", 2) is None

    def test_a_choice_that_does_not_exist_is_refused_before_any_weight_exists(self, registry):
        with pytest.raises(ConfigError, match=r"at 0\.1\.gate takes choice 2 .*choices 0 to 1"):
            LanguageModel(gated("learned", 2), registry)


def test_each_document_follows_the_schedule_from_its_own_start(build, tokens):
    model = build(scheduled("segment_random", UNALIGNED))
    document_BT = torch.tensor([[0] * 7 + [1] * 12]).expand(3, 19)
    _, taken = whole_pass(model, tokens, document_BT=document_BT)
    assert taken["mode"][0].tolist() == BY_HAND[:7] + BY_HAND[:12]


def test_forced_decisions_still_go_first(build, tokens):
    model = build(scheduled("segment_random", UNALIGNED))
    forced = torch.full_like(tokens, -1)
    forced[:, 2] = 1
    _, taken = whole_pass(model, tokens, forced={"mode": forced})
    assert taken["mode"][0].tolist() == [0, 0, 1, *BY_HAND[3:]]


def test_a_gate_can_be_scheduled_like_a_mode(build, tokens):
    schedule = [(0, 1), (6, 0)]
    model = build(architecture({"blocks": [block(ATTENTION, gate=gate("learned", evaluate=schedule))]}))
    _, taken = whole_pass(model, tokens)
    assert taken["0.0.0.gate"][0].tolist() == [1] * 6 + [0] * 13


def test_one_architecture_however_its_schedule_is_written(registry):
    forms = [1, [(0, 1)], [[0, 1], [9, 1]]]
    assert len({repr(registry.canonical(scheduled("segment_random", form))) for form in forms}) == 1
    written = registry.canonical(scheduled("segment_random", [[0, 0], [3, 0], [9, 1]]))
    assert written == registry.canonical(scheduled("segment_random", [(0, 0), (9, 1)]))
    assert registry.canonical(written) == written


@pytest.mark.parametrize("evaluate", [2, [(0, 0), (4, 2)]])
def test_a_mode_that_does_not_exist_is_refused_before_any_weight_exists(registry, evaluate):
    with pytest.raises(ConfigError, match=r"router 'segment_random' at mode takes choice 2 .*choices 0 to 1"):
        LanguageModel(scheduled("segment_random", evaluate), registry)


class TestLedger:
    def estimate(self, registry, name, evaluate, tokens=20):
        costs = registry.factory("cost", "analytic")(None, registry)
        return costs.estimate(registry.canonical(scheduled(name, evaluate)), Shape(1, tokens))

    @pytest.mark.parametrize("name", ROUTERS)
    def test_rates_outside_training_are_the_schedules(self, registry, name):
        ledger = self.estimate(registry, name, UNALIGNED)
        assert ledger.rates["mode"] == pytest.approx((11 / 20, 9 / 20))
        own = self.estimate(registry, name, "same")
        # Training is charged as the router trains, with its probe.
        assert ledger.training_flops_per_token == own.training_flops_per_token
        assert ledger.parameters == own.parameters

    @pytest.mark.parametrize("name", ["learned", "entropy_gate"])
    def test_deciding_costs_nothing_outside_training(self, registry, name):
        ledger = self.estimate(registry, name, 0)
        (router,) = (part for part in ledger.parts if part.site == "mode")
        assert router.prefill_flops_per_token == router.decode_flops_per_token == 0
        assert router.training_flops_per_token > 0

    def test_training_of_what_skips_is_charged_at_the_routers_own_rate(self, registry):
        def estimate(evaluate):
            genome = architecture({"blocks": [block(SWIGLU, gate=gate("segment_random", evaluate=evaluate))]})
            costs = registry.factory("cost", "analytic")(None, registry)
            return costs.estimate(registry.canonical(genome), Shape(1, 64))

        never, always, own = estimate(0), estimate(1), estimate("same")
        assert (
            never.training_flops_per_token == always.training_flops_per_token == own.training_flops_per_token
        )
        assert never.prefill_flops_per_token < own.prefill_flops_per_token < always.prefill_flops_per_token

    def test_a_schedule_longer_than_the_text_is_refused(self, registry):
        with pytest.raises(ConfigError, match="switches at position 17, but the text has 17 tokens"):
            self.estimate(registry, "segment_random", UNALIGNED, tokens=17)
