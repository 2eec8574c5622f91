"""One model, however written, is one genome: what is made equal is the same function at the same cost, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.contracts.canonical import pattern
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, digest, from_yaml, to_yaml
from crossbreed.core.host import Host, Registry
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from tests.support.genomes import (
    ATTENTION,
    DELTANET,
    DEPTH_ATTENTION,
    EXPERTS,
    MAMBA2,
    SWIGLU,
    architecture,
    block,
    gate,
    multi,
    of_experts,
)

REGISTRY = Host.load(third_party=False)
PLAIN = [ATTENTION, MAMBA2, DELTANET, SWIGLU]
SUMS = (
    "training_flops_per_token", "prefill_flops_per_token", "decode_flops_per_token",
    "executed_training_flops_per_token", "executed_prefill_flops_per_token", "executed_decode_flops_per_token",
    "parameters", "active_parameters", "state_bytes", "scratch_bytes", "training_peak_bytes",
    "kept_bytes_per_token", "decode_traffic_bytes_per_token",
)  # fmt: skip


class AsWritten:
    """The registry of a model that is built as it is written, in no canonical form."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def canonical(self, genome: Architecture) -> Architecture:
        return genome


def hashed(genome: Architecture) -> str:
    return digest(REGISTRY.canonical(genome))


def same_model(written: Architecture) -> None:
    """Its canonical form computes the same from the same seed, to the last bit, and costs the same."""
    form = REGISTRY.canonical(written)
    costs = REGISTRY.factory("cost", "analytic")(None, REGISTRY)
    one, other = (costs.estimate(genome, Shape(2, 70)) for genome in (written, form))
    for quantity in SUMS:
        assert getattr(one, quantity) == pytest.approx(getattr(other, quantity), rel=1e-12), quantity
    tokens_BT = torch.arange(14).view(2, 7) % written.vocab
    outputs = []
    for genome, parts in ((written, AsWritten(REGISTRY)), (form, REGISTRY)):
        model = LanguageModel(genome, parts, seed=3).double()  # type: ignore[arg-type]
        context = model.context(tokens_BT, phase="train", labels_BT=tokens_BT)
        outputs.append(model(tokens_BT, context)[0])
    assert torch.equal(*outputs)


@st.composite
def writings(draw: st.DrawFn) -> tuple[Architecture, Architecture]:
    """Two genomes of one list of plain sublayers, cut into blocks and repeats anyhow."""
    unit = draw(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3))
    times = draw(st.sampled_from([1, 2, 4]))
    fields = draw(
        st.sampled_from([{}, {"norm": "sandwich"}, {"norm": "none", "output_init": "depth_scaled"}])
    )

    def written() -> Architecture:
        repeats = draw(st.sampled_from([n for n in (1, 2, 4) if times % n == 0]))
        left = unit * (times // repeats)
        blocks = []
        while left:
            size = draw(st.integers(1, len(left)))
            blocks.append(block(*left[:size], **fields))
            left = left[size:]
        return architecture({"blocks": blocks, "depth": {"repeats": repeats}})

    return written(), written()


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(writings())
def test_layers_listed_or_repeated_and_cut_into_blocks_anyhow_are_one_genome(pair: Any) -> None:
    one, other = pair
    assert REGISTRY.canonical(one) == REGISTRY.canonical(other)
    form = REGISTRY.canonical(one)
    assert REGISTRY.canonical(form) == form
    assert REGISTRY.canonical(from_yaml(to_yaml(form))) == form


@settings(max_examples=6, deadline=None, derandomize=True, database=None)
@given(writings())
def test_what_is_made_one_genome_is_one_function_at_one_cost(pair: Any) -> None:
    same_model(pair[0])


def test_a_layer_of_two_blocks_listed_is_one_block_repeated() -> None:
    form = REGISTRY.canonical(architecture({"blocks": [block(MAMBA2), block(SWIGLU)] * 3}))
    (stage,) = form.stages
    assert stage.depth.repeats == 3
    assert [[s.mixer for s in b.sublayers] for b in stage.blocks] == [["mamba2", "swiglu"]]


def test_dreamers_block_stays_one_block_and_two_mixers_of_one_axis_are_two() -> None:
    dreamer = architecture(
        {"blocks": [block(DEPTH_ATTENTION, ATTENTION, EXPERTS)], "depth": {"name": "recurrent", "repeats": 2}}
    )
    apart = architecture(
        {
            "blocks": [block(DEPTH_ATTENTION), block(ATTENTION), block(EXPERTS)],
            "depth": {"name": "recurrent", "repeats": 2},
        }
    )
    assert hashed(dreamer) == hashed(apart)
    same_model(apart)
    (stage,) = REGISTRY.canonical(apart).stages
    assert len(stage.blocks) == 1
    (stage,) = REGISTRY.canonical(architecture({"blocks": [block(MAMBA2, ATTENTION, SWIGLU, SWIGLU)]})).stages
    assert [[s.mixer for s in b.sublayers] for b in stage.blocks] == [
        ["mamba2"],
        ["attention", "swiglu"],
        ["swiglu"],
    ]


@pytest.mark.parametrize("inject", [False, True])
def test_one_repeat_is_the_same_under_every_policy(inject: bool) -> None:
    once = {"name": "recurrent", "repeats": 1, "params": {"inject": inject}}
    written = architecture({"blocks": [block(ATTENTION, EXPERTS)], "depth": once})
    assert hashed(written) == hashed(architecture({"blocks": [block(ATTENTION, EXPERTS)]}))
    same_model(written)
    twice = architecture({"blocks": [block(ATTENTION, EXPERTS)], "depth": {**once, "repeats": 2}})
    assert REGISTRY.canonical(twice).stages[0].depth.name == "recurrent"


LEVEL = {"mixer": "experts", "params": {**EXPERTS["params"], "depth_encoding": "none"}}


@pytest.mark.parametrize(
    ("sublayer", "one"),
    [
        (LEVEL, True),
        (EXPERTS, False),
        ({"mixer": "experts", "params": {**LEVEL["params"], "balance": "each_depth"}}, False),
        (of_experts(ATTENTION), False),
        (of_experts(ATTENTION, depth_encoding="none"), True),
        (DEPTH_ATTENTION, False),
    ],
)
def test_repeats_of_what_looks_at_its_depth_are_not_so_many_first_depths(sublayer: dict, one: bool) -> None:
    listed = architecture({"blocks": [block(sublayer)] * 3})
    repeated = architecture({"blocks": [block(sublayer)], "depth": {"repeats": 3}})
    assert (hashed(listed) == hashed(repeated)) is one
    if one:
        same_model(listed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([block(ATTENTION, gate=gate("learned"))] * 2, {"depth": {"repeats": 2}, "blocks": [block(ATTENTION, gate=gate("learned"))]}),
        ([block(ATTENTION, SWIGLU, output_scale={})], [block(ATTENTION, output_scale={}), block(SWIGLU, output_scale={})]),
        ([block(ATTENTION, SWIGLU, arrangement="parallel")], [block(ATTENTION), block(SWIGLU)]),
        ([block(ATTENTION, SWIGLU)], [block(ATTENTION), block(SWIGLU, norm="none")]),
        ([block(ATTENTION, SWIGLU)], [block(ATTENTION), block(SWIGLU, norm_eps=1e-5)]),
        ([block(ATTENTION, SWIGLU)], [block(ATTENTION), block(SWIGLU, output_init="zero")]),
        ([block(ATTENTION)] * 2, {"depth": {"name": "recurrent", "repeats": 2}, "blocks": [block(ATTENTION)]}),
    ],
)  # fmt: skip
def test_what_is_another_function_or_has_sites_of_other_names_stays_apart(one: Any, other: Any) -> None:
    stages = [{"blocks": s} if isinstance(s, list) else s for s in (one, other)]
    assert hashed(architecture(stages[0])) != hashed(architecture(stages[1]))


def test_a_stage_with_a_halt_keeps_its_repeats_and_two_stages_stay_two() -> None:
    halting = architecture(
        {"blocks": [block(ATTENTION)] * 2, "depth": {"repeats": 2}, "halt": gate("learned")}
    )
    (stage,) = REGISTRY.canonical(halting).stages
    assert (len(stage.blocks), stage.depth.repeats) == (2, 2)
    two = architecture({"blocks": [block(ATTENTION)]}, {"blocks": [block(ATTENTION)]})
    assert len(REGISTRY.canonical(two).stages) == 2


@pytest.mark.parametrize(
    ("items", "length"), [("aaaa", 1), ("abab", 2), ("abaab", 5), ("aabaab", 3), ("a", 1), ("ab", 2)]
)
def test_the_shortest_pattern(items: str, length: int) -> None:
    assert pattern(items) == length


READERS = ("gated_deltanet", "mamba2", "attention")


def moded(**params: Any) -> Architecture:
    router = gate("segment_random", probability=[1 / len(READERS)] * len(READERS), **params)
    return architecture({"blocks": [block(multi(*READERS))]}, mode_router=router)


@pytest.mark.parametrize("setting", ["evaluate", "train"])
@pytest.mark.parametrize(
    ("named", "numbered"),
    [
        ("attention", 2),
        ("gated_deltanet", 0),
        ([[0, "mamba2"], [5, "attention"]], [[0, 1], [5, 2]]),
        ([[0, 1], [5, "attention"]], [[0, 1], [5, 2]]),
        ([[0, "attention"], [5, "attention"]], 2),
    ],
)
def test_a_mode_is_its_number_or_its_readers_name(setting: str, named: Any, numbered: Any) -> None:
    """Oryx's schedules."""
    one, other = moded(**{setting: named}), moded(**{setting: numbered})
    assert hashed(one) == hashed(other)
    assert LanguageModel(one, REGISTRY).architecture == REGISTRY.canonical(other)


class TestModeNames:
    """What stands for a mode, and what does not."""

    def test_readers_that_nobody_wrote_have_names_too(self) -> None:
        silent = architecture(
            {"blocks": [block({"mixer": "multi_mixer"})]}, mode_router=gate("learned", evaluate="attention")
        )
        assert REGISTRY.canonical(silent).mode_router.params["evaluate"] == 1  # type: ignore[union-attr]

    @pytest.mark.parametrize("value", ["atention", [[0, "mamba2"], [5, "atention"]]])
    def test_an_unknown_name_is_a_sentence_that_lists_the_readers(self, value: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            REGISTRY.canonical(moded(evaluate=value))
        assert str(caught.value) == (
            "evaluate of mode_router 'segment_random' names 'atention'; it must be 'same', a mode's number or the name of a "
            "reader (gated_deltanet, mamba2, attention); did you mean 'attention'?"
        )

    def test_a_gate_has_no_readers_to_name(self) -> None:
        gated = architecture({"blocks": [block(ATTENTION, gate=gate("learned", evaluate="attention"))]})
        with pytest.raises(ConfigError, match="evaluate must be 'same' or a whole number"):
            REGISTRY.canonical(gated)

    def test_same_is_no_name(self) -> None:
        assert hashed(moded(evaluate="same")) == hashed(moded())
