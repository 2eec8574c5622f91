"""Descriptors: what is offered, what may be drawn and moved, and how settings are written."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest

from crossbreed.core.contracts.mixer import MixerBuild
from crossbreed.core.contracts.space import Choices, Integers
from crossbreed.core.errors import ConfigError, MissingCapability
from crossbreed.core.genome import Architecture, digest
from tests.plugins.mixers.helpers import PARTS, build

NAMES = ["attention", "depth_attention", "experts", "gated_deltanet", "mamba2", "multi_mixer", "swiglu"]


def test_built_ins_are_offered() -> None:
    assert PARTS.names("mixer") == NAMES
    assert PARTS.problems == []


def test_listing_imports_no_torch() -> None:
    code = (
        "import sys, crossbreed.plugins.mixers as m; m.register_mixers(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_a_default_and_a_reason(name: str) -> None:
    config = PARTS.descriptor("mixer", name).config
    config()
    for field, info in config.model_fields.items():
        assert info.description, f"{name}.{field}"


def draws(ranges: Any) -> list[Any]:
    if isinstance(ranges, Choices):
        return list(ranges.values)
    assert isinstance(ranges, Integers)
    values = list(ranges.values())
    return [values[0], values[len(values) // 2], values[-1]]


@pytest.mark.parametrize("name", NAMES)
def test_every_draw_and_every_move_is_legal(name: str) -> None:
    descriptor = PARTS.descriptor("mixer", name)
    assert set(descriptor.ranges) <= set(descriptor.config.model_fields)
    assert set(descriptor.free) <= set(descriptor.config.model_fields)
    for values in itertools.product(*map(draws, descriptor.ranges.values())):
        drawn = dict(zip(descriptor.ranges, values, strict=True))
        PARTS.config("mixer", name, drawn)
        for moved in itertools.product(*map(draws, descriptor.free.values())):
            PARTS.config("mixer", name, drawn | dict(zip(descriptor.free, moved, strict=True)))


def canonical(name: str, params: dict[str, Any]) -> str:
    block = {"sublayers": [{"mixer": name, "params": params}]}
    architecture = Architecture.model_validate({"vocab": 9, "d_model": 8, "stages": [{"blocks": [block]}]})
    return digest(PARTS.canonical(architecture))


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("attention", {}, {"heads": 4, "kv_heads": 4, "head_size": 16.0}),
        ("gated_deltanet", {"heads": 2}, {"heads": 2, "key_heads": 2}),
        ("multi_mixer", {}, {"readers": ["mamba2", {"name": "attention", "params": {"window": None}}]}),
        ("multi_mixer", {"style": "tm"}, {"kv_activation": "none", "norm": "full"}),
        ("multi_mixer", {"readers": ["gated_deltanet"]}, {"readers": ["gated_deltanet"], "style": "tg"}),
        ("attention", {}, {"norm_eps": 1e-3}),
        ("mamba2", {"norm": "none"}, {"norm": "none", "norm_eps": 1e-3}),
        ("gated_deltanet", {"norm": "none"}, {"norm": "none", "norm_eps": 1e-3}),
        ("multi_mixer", {"norm": "none"}, {"norm": "none", "norm_eps": 1e-3}),
    ],
)
def test_one_architecture_has_one_hash(name: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    assert canonical(name, first) == canonical(name, second)


def test_style_sets_what_was_not_set() -> None:
    tg = PARTS.config("mixer", "multi_mixer", {"readers": ["gated_deltanet", "attention"]})
    assert (tg.kv_activation, tg.q_activation, tg.rope, tg.norm) == ("silu", "silu", "attention", "head")
    tm = PARTS.config("mixer", "multi_mixer", {"readers": ["mamba2", "attention"], "norm": "head"})
    assert (tm.kv_activation, tm.q_activation, tm.rope, tm.norm) == ("none", "none", "all", "head")
    assert hash(tm) != hash(tg)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("attention", {"kv_heads": 3}, r"kv_heads \(3\) must divide heads \(4\)"),
        ("attention", {"head_size": 15}, r"int\(15 x 1.0\) = 15"),
        ("attention", {"heds": 2}, "did you mean 'heads'"),
        ("mamba2", {"groups": 3}, r"groups \(3\) must divide heads \(4\)"),
        ("mamba2", {"dt_min": 1.0}, r"dt_min \(1.0\) must not exceed dt_max \(0.1\)"),
        ("mamba2", {"short_conv": {"widht": 3}}, "did you mean 'width'"),
        ("gated_deltanet", {"key_heads": 3}, r"key_heads \(3\) must divide heads \(4\)"),
        ("multi_mixer", {"readers": []}, "at least 1 item"),
        ("multi_mixer", {"readers": "mamba2"}, "readers"),
        ("multi_mixer", {"readers": [{"name": "mamba2", "params": {"skp": 1}}]}, "unknown key"),
        ("multi_mixer", {"style": "tx"}, "'auto', 'tm' or 'tg'"),
    ],
)
def test_illegal_settings_are_sentences(name: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PARTS.config("mixer", name, params)


def test_a_reader_must_be_offered() -> None:
    with pytest.raises(
        MissingCapability, match=r"'swiglu' offers no reader.*attention, gated_deltanet, mamba2"
    ):
        build("multi_mixer", {"readers": ["swiglu", "attention"]})
    with pytest.raises(ConfigError, match="needs the registry"):
        PARTS.factory("mixer", "multi_mixer")(PARTS.config("mixer", "multi_mixer", {}), MixerBuild(8))


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_backend_is_refused(name: str) -> None:
    with pytest.raises(MissingCapability, match=r"has the backend 'reference'.* only, got 'abacus'"):
        PARTS.factory("mixer", name)(
            PARTS.config("mixer", name, {}), MixerBuild(8, backend="abacus", parts=PARTS)
        )


OPTIONS: dict[str, dict[str, list[Any]]] = {
    "attention": {
        "heads": [2],
        "kv_heads": [2],
        "head_size": [8],
        "window": [3],
        "rope_theta": [100.0],
        "rope_fraction": [0.5],
        "qk_norm": [True],
        "scale": [0.7],
        "gate": [True],
        "norm": ["full", "head"],
        "short_conv": [{"width": 3}, {"on": "qkv"}, {"activation": "silu"}],
    },
    "mamba2": {
        "skip": [False],
        "dt_max": [0.05],
        "a_max": [4.0],
        "groups": [2],
        "gate": [False],
        "norm": ["none", "head"],
        "norm_eps": [1e-2],
        "short_conv": [None, {"width": 3}, {"on": "kv"}, {"activation": "none"}],
    },
    "gated_deltanet": {
        "key_heads": [2],
        "qk_l2_norm": [False],
        "dt_max": [0.05],
        "gate": [False],
        "norm": ["none", "full"],
        "norm_eps": [1e-2],
        "short_conv": [None, {"on": "kv"}],
    },
    "multi_mixer": {
        "kv_activation": ["silu"],
        "q_activation": ["silu"],
        "rope": ["none", "attention"],
        "norm": ["head"],
        "norm_eps": [1e-2],
        "gate": [False],
        "rope_theta": [100.0],
        "rope_fraction": [0.5],
        "short_conv": [None, {"on": "qkv"}],
    },
    "experts": {"shared": [0], "shared_in_top_k": [False], "shared_score": [2.0], "router_key": [None, 4]},
}
CASES = [
    (name, option, value)
    for name, settings in OPTIONS.items()
    for option, values in settings.items()
    for value in values
]


@pytest.mark.parametrize(("name", "option", "value"), CASES)
def test_no_option_is_ignored(name: str, option: str, value: Any) -> None:
    import torch

    from crossbreed.core.contracts.router import Decision
    from tests.plugins.mixers.helpers import context, random_input

    x = random_input(1, 12)
    at = context(1, 12).at(mode=Decision(torch.zeros(1, 12, dtype=torch.long)))
    with torch.no_grad():
        before, _ = build(name, {})(x, at, None)
        after, _ = build(name, {option: value})(x, at, None)
    assert not torch.allclose(before, after)
