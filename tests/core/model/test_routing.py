"""Sites: forcing, holding, freezing, counting, committing; write always, read where chosen."""

from __future__ import annotations

import pytest
import torch

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.task import Batch
from crossbreed.core.errors import ConfigError, MissingCapability, UnknownName
from crossbreed.core.host import Host
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import (
    ATTENTION,
    DELTANET,
    GENOMES,
    MAMBA2,
    SWIGLU,
    architecture,
    block,
    gate,
    multi,
)
from tests.support.passes import whole_pass

SCRIPTED = """
import torch
from pydantic import BaseModel
from crossbreed import Decision, Router, RouterCapabilities, RouterDescriptor, hookimpl

class Config(BaseModel):
    segment: int | None = None
    out_of_range: bool = False

class Scripted(Router, torch.nn.Module):
    '''Chooses the parity of position // 3; records what it is told.'''
    def __init__(self, config, build):
        super().__init__()
        self.config, self.committed = config, []

    def segment_length(self):
        return self.config.segment

    def forward(self, h_BTD, context, state):
        choice_BT = (context.positions_BT // 3) % 2 + 5 * self.config.out_of_range
        return Decision(choice_BT, statistics={"asked": context.counted_BT().sum()}), state

    def after_step(self, statistics):
        self.committed.append([int(s["asked"]) for s in statistics])

@hookimpl
def register_routers():
    able = RouterCapabilities(sites=("gate", "halt"))
    blind = RouterCapabilities(sites=("gate", "mode", "halt"), causal=False)
    return [
        RouterDescriptor("scripted", lambda: Scripted, Config, able, "parity of position // 3"),
        RouterDescriptor("leaky", lambda: Scripted, Config, blind, "declares that it is not causal"),
    ]
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugins") / "scripted.py"
    path.write_text(SCRIPTED)
    return Host.load([str(path)], third_party=False)


def gated(**params):
    return architecture({"blocks": [block(MAMBA2), block(ATTENTION, gate=gate("scripted", **params))]})


def test_a_segment_holds_the_choice_of_its_first_token(parts):
    model = LanguageModel(gated(segment=5), parts)
    tokens = torch.zeros(1, 12, dtype=torch.int64)
    _, taken = whole_pass(model, tokens)
    first = [(5 * (t // 5)) // 3 % 2 for t in range(12)]
    assert taken["0.1.0.gate"][0].tolist() == first


def test_a_segment_is_held_across_pieces_and_restarts_with_each_document(parts):
    model = LanguageModel(gated(segment=5), parts)
    tokens = torch.zeros(1, 12, dtype=torch.int64)
    document_BT = torch.tensor([[0] * 7 + [1] * 5])
    _, taken = whole_pass(model, tokens, document_BT=document_BT)
    assert taken["0.1.0.gate"][0].tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    state = model.init_state(1)
    decided = []
    site = next(model.routed_sites())
    site.register_forward_hook(lambda m, args, out: decided.extend(out[0].choice_BT[0].tolist()))
    with torch.no_grad():
        for start, stop in [(0, 3), (3, 6), (6, 12)]:
            _, state = model(tokens[:, start:stop], model.context(tokens[:, start:stop], state=state), state)
    assert decided == [0] * 5 + [1] * 5 + [(10 // 3) % 2] * 2


def test_forcing_overrides_positions_and_never_what_is_held(parts):
    model = LanguageModel(gated(segment=5), parts)
    tokens = torch.zeros(1, 10, dtype=torch.int64)
    forced = torch.full((1, 10), -1)
    forced[0, 5:7] = 0
    _, taken = whole_pass(model, tokens, forced={"0.1.gate": forced})
    assert taken["0.1.0.gate"][0].tolist() == [0] * 5 + [0, 0, 1, 1, 1]


def test_a_skipped_gate_leaves_the_stream_as_if_the_block_were_not_there(build, tokens):
    with_block = architecture({"blocks": [block(MAMBA2), block(ATTENTION, gate=gate("segment_random"))]})
    without = architecture({"blocks": [block(MAMBA2)]})
    model, shorter = build(with_block), build(without)
    shorter.load_state_dict({k: v for k, v in model.state_dict().items() if k in shorter.state_dict()})
    skip = torch.zeros_like(tokens)
    h_BTD, _ = whole_pass(model, tokens, forced={"0.1.gate": skip})
    expected, _ = whole_pass(shorter, tokens)
    torch.testing.assert_close(h_BTD, expected)


def test_a_skipped_token_is_still_written_and_seen_by_later_queries(build, tokens):
    genome = architecture({"blocks": [block(ATTENTION, gate=gate("segment_random"))]})
    model = build(genome)
    only_last = torch.zeros_like(tokens)
    only_last[:, -1] = 1
    gated, _ = whole_pass(model, tokens, forced={"0.0.gate": only_last})
    full, _ = whole_pass(model, tokens, forced={"0.0.gate": torch.ones_like(tokens)})
    # One attention block: the last token reads the same keys and values whether or not the others read.
    torch.testing.assert_close(gated[:, -1], full[:, -1])
    assert (gated[:, 5] - full[:, 5]).abs().max() > 1e-4


def test_first_layer_states_do_not_depend_on_the_mode_schedule(build, tokens):
    model = build(GENOMES["oryx_random"])
    states = []
    for choice in (0, 1):
        forced = {"mode": torch.full_like(tokens, choice)}
        with torch.no_grad():
            _, state = model(tokens, model.context(tokens, forced=forced), model.init_state(3, slots=19))
        states.append(state)
    for key, tensor in states[0].mixers["0.0.0.0"].items():
        torch.testing.assert_close(tensor, states[1].mixers["0.0.0.0"][key])
    deeper = [
        (a - states[1].mixers["0.0.1.0"][k]).abs().max()
        for k, a in states[0].mixers["0.0.1.0"].items()
        if a.is_floating_point()
    ]
    assert max(deeper) > 1e-4


def test_a_halted_token_is_frozen_and_goes_on_writing(build, tokens):
    genome = architecture(
        {
            "blocks": [block(ATTENTION)],
            "depth": {"name": "recurrent", "repeats": 3},
            "halt": gate("segment_random"),
        }
    )
    model = build(genome)
    stop_first = torch.ones_like(tokens)
    stop_first[:, :4] = 0
    forced = {"0.0.halt": stop_first}
    with torch.no_grad():
        h_BTD, state = model(
            tokens,
            model.context(tokens, forced=forced | {"0.1.halt": torch.ones_like(tokens)}),
            model.init_state(3, slots=19),
        )
        shallow = LanguageModel(
            architecture({"blocks": [block(ATTENTION)]}), Host.load(third_party=False)
        ).double()
        shallow.load_state_dict({k: v for k, v in model.state_dict().items() if "halt" not in k})
        once, _ = shallow(tokens, shallow.context(tokens))
    torch.testing.assert_close(h_BTD[:, :4], once[:, :4])
    for depth in range(3):
        keys = next(t for name, t in state.mixers[f"0.0.{depth}.0"].items() if name.split(".")[-1] == "k")
        assert (keys[:, :19].abs().flatten(2).sum(-1) > 0).all()


def test_a_token_once_halted_stays_halted(build, tokens):
    genome = architecture(
        {
            "blocks": [block(ATTENTION)],
            "depth": {"name": "recurrent", "repeats": 3},
            "halt": gate("segment_random"),
        }
    )
    model = build(genome)
    stop, go = torch.zeros_like(tokens), torch.ones_like(tokens)
    revived, _ = whole_pass(model, tokens, forced={"0.0.halt": stop, "0.1.halt": go})
    stopped, _ = whole_pass(model, tokens, forced={"0.halt": stop})
    assert torch.equal(revived, stopped)


def test_counts_cover_asked_tokens_once_per_call(parts):
    model = LanguageModel(gated(), parts)
    tokens = torch.zeros(2, 7, dtype=torch.int64)
    recorder = Recorder()
    valid_BT = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    model(tokens, model.context(tokens, recorder=recorder, valid_BT=valid_BT))
    records = dict(recorder.records)
    assert records["0.1.0.gate"]["counts"].tolist() == [3 + 1 + 3, 3 + 1]


@pytest.mark.parametrize("genome", ["amor", "oryx_entropy"])
def test_a_detailed_recorder_keeps_what_every_token_was_given_in_any_split(build, tokens, genome):
    model = build(GENOMES[genome])

    def seen(*cuts):
        recorder, state, T = Recorder(detail=True), model.init_state(3, slots=19), tokens.shape[1]
        for start, stop in zip((0, *cuts), (*cuts, T), strict=True):
            piece = tokens[:, start:stop]
            _, state = model(piece, model.context(piece, state=state, recorder=recorder), state)
        found = {}
        for site, facts in recorder.records:
            for name in ("choice_BT", "asked_BT", "entropy_BT"):
                if name in facts:
                    found.setdefault((site, name), []).append(facts[name])
        return {key: torch.cat(pieces, dim=1) for key, pieces in found.items()}

    whole, split = seen(), seen(5, 6, 13)
    sites = {site for site, _ in whole}
    assert len(whole) == 3 * len(sites) > 0
    for key, fact_BT in whole.items():
        assert fact_BT.shape == tokens.shape
        torch.testing.assert_close(split[key], fact_BT, rtol=0, atol=1e-12)


def test_a_plain_recorder_keeps_nothing_per_token(build, tokens):
    model, recorder = build(GENOMES["amor"]), Recorder()
    model(tokens, model.context(tokens, recorder=recorder))
    assert {name for _, facts in recorder.records for name in facts} == {"counts"}


def test_statistics_are_committed_once_per_step_from_all_calls(parts):
    genome = architecture(
        {"blocks": [block(ATTENTION)], "depth": {"name": "recurrent", "repeats": 3}, "halt": gate("scripted")}
    )
    model = LanguageModel(genome, parts)
    tokens = torch.zeros(1, 6, dtype=torch.int64)
    for _ in range(2):
        model.loss(Batch(tokens, tokens), model.context(tokens, phase="train", labels_BT=tokens))
    model.after_step()
    model.after_step()
    router = next(model.routed_sites()).router
    # Two micro-batches, two decisions each; at the second depth the three tokens that stopped are not asked.
    assert router.committed == [[6, 3, 6, 3]] or router.committed == [[6, 3, 6, 3], []]


def test_recomputation_with_a_closed_recorder_commits_nothing(parts):
    model = LanguageModel(gated(), parts)
    tokens = torch.zeros(1, 6, dtype=torch.int64)
    closed = model.context(tokens, phase="train", labels_BT=tokens, recorder=Recorder(open=False))
    model.loss(Batch(tokens, tokens), closed)
    model.after_step()
    router = next(model.routed_sites()).router
    assert all(not calls for calls in router.committed)


def test_evaluation_never_moves_a_threshold(build, tokens):
    model = build(GENOMES["amor"])
    before = {k: v.clone() for k, v in model.state_dict().items()}
    whole_pass(model, tokens)
    model.after_step()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_training_step_moves_the_thresholds_of_a_feedback_router(build, tokens):
    model = build(GENOMES["oryx_entropy"])
    site = model.mode
    before = site.router.mu.clone()
    model.loss(Batch(tokens, tokens), model.context(tokens, phase="train", labels_BT=tokens))
    assert torch.equal(site.router.mu, before)
    model.after_step()
    assert not torch.equal(site.router.mu, before)


def test_a_choice_out_of_range_is_refused(parts):
    model = LanguageModel(gated(out_of_range=True), parts)
    tokens = torch.zeros(1, 6, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"router 'scripted' at '0.1.0.gate' chose outside 0..1: 5..6"):
        model(tokens, model.context(tokens))


@pytest.mark.parametrize(
    ("genome", "error", "said"),
    [
        (architecture({"blocks": [block(multi("mamba2", "attention"))]}), ConfigError, "mode_router is missing"),
        (architecture({"blocks": [block(ATTENTION)]}, mode_router=gate("learned")), ConfigError, "nothing to choose"),
        (architecture({"blocks": [block(multi("mamba2", "attention"))]}, mode_router=gate("scripted")), MissingCapability, "not at a mode site"),
        (architecture({"blocks": [block(ATTENTION, gate=gate("leaky"))]}), MissingCapability, "not causal"),
        (architecture({"blocks": [block(ATTENTION, gate=gate("entropy_gat"))]}), UnknownName, "did you mean 'entropy_gate'"),
        (architecture({"blocks": [block({**SWIGLU, "mixer": "swigly"})]}), UnknownName, "did you mean 'swiglu'"),
        (architecture({"blocks": [block({**DELTANET, "params": {"heads": 0}})]}), ConfigError, "heads"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_any_weight_exists(parts, genome, error, said):
    with pytest.raises(error, match=said):
        LanguageModel(genome, parts)
