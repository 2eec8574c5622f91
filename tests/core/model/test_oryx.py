"""What Oryx promises of a whole model (oryx.md, section 9: u1 to u7), for Mamba-2 and Gated DeltaNet beside attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from tests.core.model.test_language_model import pieces
from tests.support.genomes import architecture, block, gate
from tests.support.passes import whole_pass

FAMILIES = {"tm": "mamba2", "tg": "gated_deltanet"}
LINEAR, ATTENTION = 0, 1
TOKENS, SEGMENT = 45, 16
FAMILY = pytest.mark.parametrize("family", FAMILIES)


def oryx(family: str, *readers: str, layers: int = 2, **params: Any) -> Architecture:
    """``readers`` default to the family's two; with one there is no mode to choose."""
    listed = readers or (FAMILIES[family], "attention")
    mixer = {
        "mixer": "multi_mixer",
        "params": {"readers": list(listed), "style": family, "heads": 2, "head_size": 8, **params},
    }
    mlp = {"mixer": "swiglu", "params": {"hidden": 43}}
    router = gate("segment_random", segment=SEGMENT) if len(listed) > 1 else None
    return architecture({"blocks": [block(mixer), block(mlp)] * layers}, mode_router=router)


@pytest.fixture
def text() -> torch.Tensor:
    return torch.randint(0, 23, (3, TOKENS), generator=torch.Generator().manual_seed(1))


def switching(*positions: int) -> torch.Tensor:
    """(3, TOKENS): linear first, the other mode from each position on."""
    flips = torch.zeros(TOKENS, dtype=torch.int64)
    flips[list(positions)] = 1
    return (flips.cumsum(0) % 2).expand(3, TOKENS)


SCHEDULES = {
    "linear": switching(),
    "attention": switching(0),
    "linear, then attention inside a segment": switching(37),
    "there and back, unaligned": switching(5, 19, 29, 40),
    "aligned": switching(16, 32),
    "drawn for every token": torch.randint(0, 2, (3, TOKENS), generator=torch.Generator().manual_seed(8)),
}
CUTS = {
    "one by one": [1] * TOKENS,
    "pieces of any length": [1, 15, 2, 1, 1, 13, 7, 5],
    "a prompt, then one by one": [37] + [1] * 8,
}


class TestDecoding:
    """One parallel pass under a schedule equals pieces and single steps."""

    @FAMILY
    @pytest.mark.parametrize("schedule", SCHEDULES)
    @pytest.mark.parametrize("cuts", CUTS)
    def test_a_parallel_pass_equals_pieces_and_single_tokens(self, build, text, family, schedule, cuts):
        model, forced = build(oryx(family)), {"mode": SCHEDULES[schedule]}
        whole, _ = whole_pass(model, text, forced=forced)
        with torch.no_grad():
            split, _ = pieces(model, text, CUTS[cuts], forced)
        torch.testing.assert_close(split, whole, rtol=0, atol=1e-9)

    @FAMILY
    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_in_single_precision_too(self, builtins, text, family, schedule):
        model, forced = LanguageModel(oryx(family), builtins).eval(), {"mode": SCHEDULES[schedule]}
        whole, _ = whole_pass(model, text, forced=forced)
        with torch.no_grad():
            split, _ = pieces(model, text, CUTS["one by one"], forced)
        assert whole.dtype == torch.float32
        torch.testing.assert_close(split, whole, rtol=0, atol=1e-4)

    @FAMILY
    def test_its_own_training_schedule_too(self, build, text, family):
        model = build(oryx(family))
        whole, taken = whole_pass(model, text)
        assert taken["mode"].unique().tolist() == [LINEAR, ATTENTION]
        with torch.no_grad():
            split, _ = pieces(model, text, CUTS["pieces of any length"])
        torch.testing.assert_close(split, whole, rtol=0, atol=1e-9)


@FAMILY
@pytest.mark.parametrize("prefix", [1, 16, 19, 38])
def test_no_output_depends_on_a_later_token_or_a_later_mode(build, text, family, prefix):
    model, mode = build(oryx(family)), SCHEDULES["there and back, unaligned"]
    before, _ = whole_pass(model, text, forced={"mode": mode})
    changed, other = text.clone(), mode.clone()
    changed[:, prefix:] = (changed[:, prefix:] + 5) % 23
    other[:, prefix:] = 1 - other[:, prefix:]
    after, _ = whole_pass(model, changed, forced={"mode": other})
    torch.testing.assert_close(after[:, :prefix], before[:, :prefix], rtol=0, atol=1e-11)
    assert (after[:, prefix] - before[:, prefix]).abs().max() > 1e-3


@FAMILY
def test_the_first_layers_states_are_the_same_under_any_schedule_and_deeper_ones_not(build, text, family):
    model, states = build(oryx(family)), []
    for mode in SCHEDULES.values():
        with torch.no_grad():
            context = model.context(text, forced={"mode": mode})
            _, state = model(text, context, model.init_state(3, slots=TOKENS))
        states.append(state.mixers)
    first, *others = states
    assert {name.partition(".")[2] for name in first["0.0.0.0"]} >= {"S", "k", "v"}
    for other in others:
        for name, tensor in first["0.0.0.0"].items():
            assert torch.equal(tensor, other["0.0.0.0"][name]), name
        for name in ("0.S", "1.k", "1.v"):
            assert (first["0.0.1.0"][name] - other["0.0.1.0"][name]).abs().max() > 1e-4, name


class TestParameters:
    """14 D^2 L stored, 13 D^2 L active, of which 12 are shared; small tensors apart."""

    D, H, L, VOCAB = 48, 3, 2, 23

    def genome(self, family: str) -> Architecture:
        mixer = {
            "mixer": "multi_mixer",
            "params": {"readers": [FAMILIES[family], "attention"], "heads": self.H, "head_size": 16},
        }
        mlp = {"mixer": "swiglu", "params": {"hidden": 8 * self.D // 3}}
        genome = architecture(
            {"blocks": [block(mixer), block(mlp)] * self.L}, mode_router=gate("segment_random")
        )
        return genome.model_copy(update={"d_model": self.D})

    def matrices(self, model: LanguageModel) -> dict[str, torch.Tensor]:
        """Everything but embedding, norms, convolutions, and what decays and gates of a recurrence need."""
        small = ("embedding", "norm", "conv", "readers")
        return {n: p for n, p in model.named_parameters() if not any(s in n for s in small)}

    @FAMILY
    def test_stored_active_and_shared(self, builtins, family):
        D, L = self.D, self.L
        model = LanguageModel(self.genome(family), builtins)
        stored = sum(p.numel() for p in self.matrices(model).values())
        assert stored == 14 * D * D * L
        # Active in one mode: what a pass in that mode gives a gradient to.
        batch = Batch(*(torch.randint(0, 23, (1, 9)) for _ in range(2)))
        touched = {}
        for mode in (LINEAR, ATTENTION):
            model.zero_grad()
            forced = {"mode": torch.full((1, 9), mode)}
            context = model.context(batch.tokens_BT, phase="train", labels_BT=batch.labels_BT, forced=forced)
            model.loss(batch, context).objective.backward()
            touched[mode] = {n: p.grad != 0 for n, p in self.matrices(model).items()}
        active = [sum(int(rows(mask)) for mask in touched[mode].values()) for mode in (LINEAR, ATTENTION)]
        shared = sum(int(rows(touched[LINEAR][n] & touched[ATTENTION][n])) for n in touched[LINEAR])
        assert active == [13 * D * D * L] * 2
        assert shared == 12 * D * D * L
        assert shared / active[0] == 12 / 13
        assert shared / stored == 12 / 14

    @FAMILY
    def test_the_ledger_counts_the_same(self, builtins, family):
        D, L = self.D, self.L
        costs = builtins.factory("cost", "analytic")(None, builtins)
        ledger = costs.estimate(builtins.canonical(self.genome(family)), Shape(1, 64))
        assert ledger.parameters - ledger.active_parameters == D * D * L
        model = LanguageModel(self.genome(family), builtins)
        small = sum(p.numel() for n, p in model.named_parameters() if n not in self.matrices(model))
        assert ledger.parameters - small == 14 * D * D * L
        assert ledger.active_parameters - small == 13 * D * D * L


def rows(mask: torch.Tensor) -> torch.Tensor:
    """Weights of the output rows that got any gradient: a channel that was used, whatever its inputs were."""
    return mask.any(1).sum() * mask.shape[1]


class TestOneMode:
    """A model that stays in one mode is the model of that mixer alone."""

    @FAMILY
    @pytest.mark.parametrize("mode", [LINEAR, ATTENTION])
    def test_it_equals_the_model_with_one_reader(self, build, text, family, mode):
        both = build(oryx(family))
        names = (FAMILIES[family], "attention")
        alone = build(oryx(family, names[mode]))
        alone.load_state_dict(self.kept(both, alone, mode))
        expected, _ = whole_pass(alone, text)
        actual, _ = whole_pass(both, text, forced={"mode": torch.full_like(text, mode)})
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)

    @pytest.mark.parametrize(
        ("family", "mode", "mixer", "settings"),
        [
            ("tm", ATTENTION, "attention", {"head_size": 8, "norm": "full", "short_conv": {"activation": "none"}}),
            ("tg", ATTENTION, "attention", {"head_size": 8, "norm": "head", "short_conv": {"activation": "silu"}}),
            ("tm", LINEAR, "mamba2", {"head_size": 8, "state_size": 8, "groups": 2, "short_conv": {"on": "kv", "bias": False, "activation": "none"}}),
            ("tg", LINEAR, "gated_deltanet", {"key_size": 8, "value_size": 8, "short_conv": {"on": "kv", "activation": "silu"}}),
        ],
    )  # fmt: skip
    def test_it_equals_the_model_of_the_single_mixer(self, build, text, family, mode, mixer, settings):
        # Single mixers have neither SiLU on queries that are not convolved nor rotary positions on a recurrence.
        both = build(oryx(family, q_activation="none", rope="attention"))
        single = {"mixer": mixer, "params": {"heads": 2, "gate": True, **settings}}
        mlp = {"mixer": "swiglu", "params": {"hidden": 43}}
        alone = build(architecture({"blocks": [block(single), block(mlp)] * 2}))
        alone.load_state_dict(self.kept(both, alone, mode))
        expected, _ = whole_pass(alone, text)
        actual, _ = whole_pass(both, text, forced={"mode": torch.full_like(text, mode)})
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)

    def kept(self, both: LanguageModel, alone: LanguageModel, mode: int) -> dict[str, torch.Tensor]:
        """The weights of one mode, by the single reader's names."""
        found = both.state_dict()
        weights = {n: found[n] for n in alone.state_dict() if n in found and ".readers." not in n}
        for name, tensor in found.items():
            head, dot, rest = name.partition(".readers.")
            if dot and rest.startswith(f"{mode}."):
                weights[f"{head}.readers.0.{rest.partition('.')[2]}"] = tensor
            if name.endswith("projections.input.weight"):
                k, v, *queries, gate_weight = tensor.split(2 * 8)
                weights[name] = torch.cat((k, v, queries[mode], gate_weight))
        return weights


@FAMILY
@pytest.mark.parametrize("mode", [LINEAR, ATTENTION])
def test_only_the_mode_that_reads_gets_a_gradient(build, text, family, mode):
    model = build(oryx(family))
    context = model.context(text, phase="train", labels_BT=text, forced={"mode": torch.full_like(text, mode)})
    model.loss(Batch(text, text), context).objective.backward()
    for name, parameter in model.named_parameters():
        if name.endswith("projections.input.weight"):
            k, v, *queries, gate_weight = parameter.grad.split(16)
            assert not queries[1 - mode].any()
            for used in (k, v, queries[mode], gate_weight):
                assert (used.abs().amax(1) > 0).all()
        elif ".readers." in name:
            # The recurrence's own weights: idle while attention reads, though its state goes on being written.
            idle = f".readers.{1 - mode}." in name
            assert (parameter.grad is None or not parameter.grad.any()) == idle, name
        else:
            assert parameter.grad.any(), name


@FAMILY
def test_a_mixed_batch_trains_both_modes(build, text, family):
    model = build(oryx(family))
    context = model.context(text, phase="train", labels_BT=text)
    model.loss(Batch(text, text), context).objective.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name
