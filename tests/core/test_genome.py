"""The genome: parsing, patterns, sentences for bad input, one canonical hash."""

import pytest

from crossbreed.core import genome
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, from_yaml, parse
from crossbreed.core.host import Host

TWO_LAYERS = """
vocab: 40
d_model: 64
named_blocks:
  mix: {sublayers: [{mixer: attention, params: {heads: 4}}]}
  mlp: {sublayers: [{mixer: swiglu, params: {hidden: 128}}]}
stages:
  - blocks: ["mix * 1", mlp, mix, mlp]
"""

SPELT_OUT = """
d_model: 64
vocab: 40.0
stages:
  - depth: {repeats: 1, name: layered}
    blocks:
      - {sublayers: [{params: {heads: 4.0}, mixer: attention}], norm: pre}
      - {sublayers: [{mixer: swiglu, params: {hidden: 128}}], arrangement: parallel}
      - {sublayers: [{mixer: attention, params: {heads: 4}}]}
      - {sublayers: [{mixer: swiglu, params: {hidden: 128}}]}
"""


@pytest.fixture(scope="module")
def registry():
    return Host.load(third_party=False)


def digest(text, registry):
    return genome.digest(registry.canonical(from_yaml(text)))


def test_the_same_architecture_has_one_hash_however_it_is_written(registry):
    assert digest(TWO_LAYERS, registry) == digest(SPELT_OUT, registry)


def test_a_default_written_out_does_not_change_the_hash(registry):
    config = registry.config("mixer", "attention", {"heads": 4}).model_dump(mode="json")
    written = from_yaml(TWO_LAYERS).with_params((0, 0, 0), **config)
    assert genome.digest(registry.canonical(written)) == digest(TWO_LAYERS, registry)


LATER = [
    ("attention", {"top_k": None, "kv_from": "stream"}, {"top_k": 3}),
    ("multi_mixer", {"readers": ["mamba2", {"name": "attention", "params": {"top_k": None}}]}, {}),
]


@pytest.mark.parametrize(("mixer", "default", "changed"), LATER)
def test_a_setting_that_came_later_is_left_out_at_its_default(registry, mixer, default, changed):
    """So that genomes stored before it keep their hashes."""
    stored = registry.config("mixer", mixer, {}).model_dump(mode="json")
    assert "top_k" not in repr(stored)
    assert "kv_from" not in stored
    assert registry.config("mixer", mixer, default).model_dump(mode="json") == stored
    if changed:
        written = registry.config("mixer", mixer, changed)
        assert written.model_dump(mode="json") == {**stored, **changed}
        assert registry.config("mixer", mixer, written.model_dump(mode="json")) == written


@pytest.mark.parametrize("router", ["entropy_gate", "learned", "segment_random", "distilled", "oracle"])
def test_routers_stored_before_they_had_a_training_schedule_keep_their_hashes(registry, router):
    assert "train" not in registry.config("router", router, {"train": "same"}).model_dump(mode="json")
    assert registry.config("router", router, {"train": 1}).model_dump(mode="json")["train"] == 1


def test_a_changed_setting_changes_the_hash(registry):
    assert digest(TWO_LAYERS.replace("128", "132"), registry) != digest(TWO_LAYERS, registry)


def test_the_canonical_form_is_a_fixed_point_and_survives_yaml(registry):
    once = registry.canonical(from_yaml(TWO_LAYERS))
    assert registry.canonical(once) == once
    assert registry.canonical(from_yaml(genome.to_yaml(once))) == once


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{vocab: 4, d_modle: 8, stages: []}", "'d_modle'; did you mean 'd_model'"),
        ("{vocab: 1, d_model: 8, stages: [{blocks: [{sublayers: [{mixer: a}]}]}]}", "vocab must be at least 2, got 1"),
        ("{vocab: 4, d_model: 8, stages: [{blocks: [{sublayers: [{mixr: a}]}]}]}", "did you mean 'mixer'"),
        ("{vocab: 4, d_model: 8, stages: [{depth: {repeats: 0}, blocks: [{sublayers: [{mixer: a}]}]}]}", "repeats.*got 0"),
        ("vocab: [", "not valid YAML"),
        ("{vocab: 4, d_model: 8, named_blocks: {mix: {}}, stages: [{blocks: [mx]}]}", "unknown named block 'mx'; did you mean 'mix'"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence_with_the_name_and_the_rule(text, said):
    with pytest.raises(ConfigError, match=said):
        from_yaml(text)


def test_a_halt_router_needs_depth_to_halt():
    with pytest.raises(ConfigError, match=r"halt router 'x' needs depth.repeats >= 2, got 1"):
        from_yaml("{vocab: 4, d_model: 8, stages: [{halt: {name: x}, blocks: [{sublayers: [{mixer: a}]}]}]}")


def test_multi_mixers_must_agree_on_their_readers():
    block = {"sublayers": [{"mixer": "multi_mixer", "params": {"readers": ["mamba2", "attention"]}}]}
    other = {"sublayers": [{"mixer": "multi_mixer", "params": {"readers": ["attention", "mamba2"]}}]}
    with pytest.raises(ConfigError, match="same readers in the same order"):
        genome.parse(
            Architecture, {"vocab": 4, "d_model": 8, "stages": [{"blocks": [block, other]}]}, "genome"
        )


def test_readers_that_stand_in_a_default_must_agree_too(registry):
    silent = {"sublayers": [{"mixer": "multi_mixer"}]}
    other = {"sublayers": [{"mixer": "multi_mixer", "params": {"readers": ["attention", "mamba2"]}}]}
    data = {"vocab": 4, "d_model": 8, "stages": [{"blocks": [silent, other]}]}
    with pytest.raises(
        ConfigError, match="same readers in the same order, got attention, mamba2; mamba2, attention"
    ):
        registry.canonical(genome.parse(Architecture, data, "genome"))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"segment": 0}, "segment must be at least 1 or 'sequence', got 0."),
        (
            {"evaluate": "late"},
            "evaluate must be 'same' or a whole number or a list, got 'late'.",
        ),
        ({"evaluate": [[0, -1]]}, "evaluate.0.1 must be at least 0, got -1."),
        (
            {"segment": 1.5, "draws": "x"},
            "segment must be a whole number or 'sequence', got 1.5.\n"
            "router 'segment_random': draws must be 'per_sequence' or 'per_batch', got 'x'.",
        ),
    ],
)
def test_a_setting_of_several_forms_is_refused_in_one_sentence_of_all_of_them(registry, params, said):
    with pytest.raises(ConfigError) as caught:
        registry.config("router", "segment_random", params)
    assert str(caught.value) == f"router 'segment_random': {said}"


def test_an_unknown_setting_of_a_plugin_names_the_nearest_right_one(registry):
    wrong = from_yaml(TWO_LAYERS.replace("heads", "haeds"))
    with pytest.raises(ConfigError, match="mixer 'attention': unknown key 'haeds'; did you mean 'heads'"):
        registry.canonical(wrong)


def test_a_misspelt_required_key_is_one_sentence_that_names_the_right_one() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Architecture, {"vocabb": 16, "d_model": 8, "stages": []}, "genome")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("genome: unknown key 'vocabb'; did you mean 'vocab'?")
    assert not any("vocab is required" in line for line in lines)


def test_a_key_that_is_missing_and_resembles_nothing_is_said() -> None:
    with pytest.raises(ConfigError, match="d_model is required"):
        parse(Architecture, {"vocab": 16, "sizes": 8, "stages": []}, "genome")
