"""What cannot work is refused with a sentence that names it, before any weight is allocated."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from crossbreed.cli import run
from crossbreed.core.errors import ConfigError, MissingCapability, UnknownName
from crossbreed.core.genome import to_yaml
from crossbreed.core.host import Host
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import check
from tests.support.genomes import ATTENTION, MAMBA2, architecture, block, gate, multi

PAIR = multi("mamba2", "attention")
THREE = multi("mamba2", "gated_deltanet", "attention")


def moded(mixer, name, **params):
    return architecture({"blocks": [block(mixer)]}, mode_router=gate(name, **params))


def gated(name, **params):
    return architecture({"blocks": [block(ATTENTION, gate=gate(name, **params))]})


def of(mixer, **params):
    return architecture({"blocks": [block({"mixer": mixer, "params": params})]})


CASES = [
    (lambda: gated("segment_random", probability=1.5), ConfigError, r"probability must lie in \[0, 1\], got 1.5"),
    (lambda: gated("learned", target_rate=-0.1), ConfigError, "target_rate must be at least 0, got -0.1"),
    (lambda: gated("entropy_gate", mu_init=2), ConfigError, "mu_init must be at most 1, got 2"),
    (lambda: moded(PAIR, "entropy_gate", train_rate=1.01), ConfigError, r"train_rate .* got 1.01"),
    (lambda: moded(PAIR, "segment_random", segment=0), ConfigError, "segment must be at least 1 or 'sequence', got 0"),
    (lambda: moded(PAIR, "learned", segment=0), ConfigError, "segment must be at least 1, got 0"),
    (lambda: moded(PAIR, "segment_random", probability=[0.2, 0.3, 0.5]), ConfigError, r"for 3 choices, but the site has 2"),
    (lambda: moded(THREE, "segment_random"), ConfigError, r"probability 0.25 for 2 choices, but the site has 3"),
    (lambda: moded(THREE, "entropy_gate"), MissingCapability, r"tells at most 2 choices apart, the site has 3"),
    (lambda: moded(PAIR, "segment_random", evaluate=2), ConfigError, r"takes choice 2 .* the site has choices 0 to 1"),
    (lambda: moded(multi("swiglu", "attention"), "learned"), MissingCapability, r"lists the reader 'swiglu', but that mixer offers no reader; these do: attention"),
    (lambda: moded(multi("mamba3", "attention"), "learned"), UnknownName, r"unknown mixer 'mamba3'; did you mean 'mamba2'"),
    (lambda: architecture({"blocks": [block(ATTENTION, output_scale={"floor": float("nan")})]}), ConfigError, r"output_scale.floor .* finite number, got nan"),
    (lambda: of("experts", experts=1, top_k=3), ConfigError, r"uses 2 routed experts, but there are only 1"),
    (lambda: of("experts", top_k=1), ConfigError, r"top_k \(1\) must exceed shared \(1\)"),
    (lambda: of("attention", head_size=7), ConfigError, r"rotary positions turn pairs: .*int\(7 x 1.0\) = 7"),
    (lambda: of("multi_mixer", head_size=9), ConfigError, r"rotary positions turn pairs: .*int\(9 x 1.0\) = 9"),
    (lambda: of("attention", heads=4, kv_heads=3), ConfigError, r"kv_heads \(3\) must divide heads \(4\)"),
    (lambda: architecture({"blocks": [block(ATTENTION)], "depth": {"repeats": 0}}), ConfigError, r"^test genome: stages.0.depth.repeats must be at least 1, got 0.$"),
    (lambda: architecture({"blocks": [block(ATTENTION)], "halt": gate("learned")}), ConfigError, r"halt router 'learned' needs depth.repeats >= 2, got 1"),
]  # fmt: skip


def test_defaults_are_filled_in_before_a_genome_is_judged(builtins):
    model = LanguageModel(moded({"mixer": "multi_mixer", "params": {}}, "segment_random"), builtins)
    assert model.sites()["mode"].names == ("mamba2", "attention")
    blocks = [block(multi("attention", "mamba2")), block({"mixer": "multi_mixer"})]
    unequal = architecture({"blocks": blocks}, mode_router=gate("segment_random"))
    with pytest.raises(ConfigError, match="same readers in the same order"):
        LanguageModel(unequal, builtins)


@pytest.mark.parametrize(("genome", "error", "says"), CASES)
def test_bad_genomes_are_refused_with_a_sentence(builtins, monkeypatch, genome, error, says):
    def refuse(*_, **__):
        raise AssertionError("a weight was allocated")

    monkeypatch.setattr(torch.nn.Embedding, "__init__", refuse)
    with pytest.raises(error, match=says):
        LanguageModel(genome(), builtins)


def test_the_command_line_refuses_with_exit_code_2(tmp_path, capsys):
    path = tmp_path / "three.yaml"
    path.write_text(to_yaml(moded(THREE, "segment_random")))
    assert run(["show", str(path)]) == 2
    assert "the site has 3; list one probability per choice" in capsys.readouterr().err


INCAPABLE = """
import torch
from pydantic import BaseModel
from crossbreed import MixerCapabilities, MixerDescriptor, Router, RouterCapabilities, RouterDescriptor, hookimpl

class Config(BaseModel):
    pass

class Never(Router):
    pass

@hookimpl
def register_routers():
    return [
        RouterDescriptor("gates_only", Never, Config, RouterCapabilities(sites=("gate",)), "stands at gates"),
        RouterDescriptor("of_two", Never, Config, RouterCapabilities(sites=("mode",), max_choices=2), "two choices"),
        RouterDescriptor(
            "both", Never, Config, RouterCapabilities(sites=("mode",), feedback_sites=("mode",), gradient=True), "both"
        ),
    ]

class Heads(BaseModel):
    head_size: int = 48

@hookimpl
def register_mixers():
    able = MixerCapabilities(axis="sequence", head_sizes=(64, 128))
    blind = MixerCapabilities(axis="sequence", causal=False)
    return [
        MixerDescriptor("tiled", Never, Heads, able, "runs heads of 64 and 128"),
        MixerDescriptor("two_way", Never, Config, blind, "sees the future"),
    ]
"""


@pytest.fixture(scope="module")
def incapable(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugins") / "incapable.py"
    path.write_text(INCAPABLE)
    return Host.load([str(path)], third_party=False)


@pytest.mark.parametrize(
    ("genome", "says"),
    [
        (moded(PAIR, "gates_only"), r"'gates_only' at mode: it can stand at gate, not at a mode site"),
        (architecture({"blocks": [block(MAMBA2)], "depth": {"repeats": 2}, "halt": gate("gates_only")}), r"at 0.halt: it can stand at gate, not at a halt site"),
        (moded(THREE, "of_two"), r"'of_two' at mode tells at most 2 choices apart, the site has 3"),
        (moded(PAIR, "both"), r"'both' at mode declares both feedback and gradient"),
        (moded(multi("mamba2", "tiled"), "of_two"), r"lists the reader 'tiled', but that mixer offers no reader"),
        (of("tiled"), r"mixer 'tiled' at 0.0.0 cannot run head_size 48; it runs 64, 128"),
        (of("two_way"), r"mixer 'two_way' at 0.0.0 is not causal"),
    ],
)  # fmt: skip
def test_a_part_in_a_place_it_cannot_serve_is_refused_by_the_missing_capability(incapable, genome, says):
    with pytest.raises(MissingCapability, match=says):
        LanguageModel(genome, incapable)


def test_a_legal_head_size_passes_and_readers_are_held_to_theirs():
    registry = Host.load(third_party=False)
    entry = registry.entries["mixer"]["mamba2"]
    able = replace(entry.descriptor.capabilities, head_sizes=(16, 32))
    entry.descriptor = replace(entry.descriptor, capabilities=able)
    with pytest.raises(
        MissingCapability, match=r"reader 'mamba2' of .* cannot run head_size 12; it runs 16, 32"
    ):
        check(moded(PAIR, "learned"), registry)
    check(of("mamba2", head_size=32, state_size=7), registry)
