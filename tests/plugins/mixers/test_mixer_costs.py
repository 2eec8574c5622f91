"""Costs equal what is built and what is issued; neither is computed by the formula it checks."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from crossbreed.core.conformance.flop_count import UncountedWork, count_flops
from crossbreed.core.contracts.mixer import MixerBuild
from crossbreed.core.contracts.router import Decision
from crossbreed.core.ledger import Cost, Shape
from tests.plugins.mixers.helpers import (
    ALL,
    D_MODEL,
    PARTS,
    SEQUENCE,
    build,
    context,
    random_input,
    with_mode,
)


def cost(name: str, params: dict[str, Any], shape: Shape, d_model: int = D_MODEL, depths: int = 1) -> Cost:
    config = PARTS.config("mixer", name, params)
    found: Cost = PARTS.factory("mixer", name).cost(config, d_model, shape, depths, PARTS)
    return found


@pytest.mark.parametrize("key", ALL)
@pytest.mark.parametrize("d_model", [12, 20])
def test_parameters_equal_the_built_module(key: str, d_model: int) -> None:
    name, params = ALL[key]
    mixer = build(name, params, d_model=d_model)
    found = cost(name, params, Shape(1, 32), d_model)
    assert found.parameters == sum(p.numel() for p in mixer.parameters())


def test_one_mode_uses_one_query_projection() -> None:
    # 5 D^2 used by a token and 6 D^2 stored, plus the small tensors (Oryx, section 4).
    D = 64
    found = cost("multi_mixer", {"heads": 4, "head_size": 16}, Shape(1, 32), D)
    small = 2 * D * 4 + D + (D * 4 + 3 * 4)
    assert found.parameters == 6 * D * D + small
    assert found.active_parameters == 5 * D * D + small


LARGE: dict[str, tuple[str, dict[str, Any]]] = {
    "attention": ("attention", {"heads": 4, "kv_heads": 2, "head_size": 16}),
    "attention gated": ("attention", {"heads": 4, "head_size": 16, "gate": True, "short_conv": {}}),
    "mamba2": ("mamba2", {"heads": 4, "head_size": 32, "state_size": 24}),
    "mamba2 grouped": ("mamba2", {"heads": 4, "head_size": 32, "state_size": 24, "groups": 2}),
    "gated_deltanet": ("gated_deltanet", {"heads": 4, "key_heads": 2, "key_size": 16, "value_size": 32}),
    "multi tm": ("multi_mixer", {"readers": ["mamba2", "attention"]}),
    "multi tg": ("multi_mixer", {"readers": ["gated_deltanet", "attention"]}),
    "attention of experts": (
        "attention",
        {"heads": 4, "head_size": 16, "gate": True, "projection_experts": {"experts": 3}},
    ),
    "multi of experts": ("multi_mixer", {"projection_experts": {"experts": 3, "tied": False}}),
    "swiglu": ("swiglu", {"hidden": 96}),
    "experts": ("experts", {"experts": 6, "hidden": 24, "top_k": 3}),
}


def counted(key: str, tokens: int, *, phase: str, every: int | None = 1, mode: int = 0) -> float:
    """FLOPs a token that the dispatcher sees when every so many-th token is read, the last one too; None: none."""
    name, params = LARGE[key]
    d_model, batch = 64, 2
    mixer = build(name, params, d_model=d_model, dtype=torch.float32, scale=1.0)
    x = random_input(batch, tokens, d_model).float()
    at = context(batch, tokens, phase=phase).at(mode=Decision(torch.full((batch, tokens), mode)))
    read_BT = torch.zeros(batch, tokens, dtype=torch.bool)
    if every is not None:
        read_BT[:, (tokens - 1) % every :: every] = True
    if phase == "decode":
        with torch.no_grad():
            prompt = at.slice(0, tokens - 1).at(phase="prefill")
            _, state = mixer(x[:, :-1], prompt, mixer.init_state(batch, slots=tokens, dtype=x.dtype))
            last = at.slice(tokens - 1, tokens)
            return count_flops(lambda: mixer(x[:, -1:], last, state, read_BT[:, -1:])) / batch

    def run() -> None:
        y, _ = mixer(x.requires_grad_(phase == "train"), at, None, read_BT)
        if phase == "train":
            y.square().sum().backward()

    with torch.set_grad_enabled(phase == "train"):
        return count_flops(run) / (batch * tokens)


@pytest.mark.parametrize("tokens", [32, 100, 256])
@pytest.mark.parametrize("key", LARGE)
def test_executed_flops_are_those_issued(key: str, tokens: int) -> None:
    name, params = LARGE[key]
    found = cost(name, params, Shape(2, tokens, "float32", "train"), 64)
    work = found.write
    for read in found.reads:
        work = work.plus(read)
    assert counted(key, tokens, phase="train") == pytest.approx(work.executed_training, rel=0.01)
    for phase in ("prefill", "decode"):
        found = cost(name, params, Shape(2, tokens, "float32", phase), 64)  # type: ignore[arg-type]
        for mode, read in enumerate(found.reads):
            wanted = found.write.plus(read).executed_forward
            assert counted(key, tokens, phase=phase, mode=mode) == pytest.approx(wanted, rel=0.01)
        if found.write.executed_forward:
            skipped = counted(key, tokens, phase=phase, every=None)
            assert skipped == pytest.approx(found.write.executed_forward, rel=0.01)
        else:
            with pytest.raises(UncountedWork, match="nothing was counted"):
                counted(key, tokens, phase=phase, every=None)


@pytest.mark.parametrize("every", [2, 4])
@pytest.mark.parametrize("key", LARGE)
def test_prefill_issues_reads_at_the_rate_of_reading(key: str, every: int) -> None:
    name, params = LARGE[key]
    found = cost(name, params, Shape(2, 64, "float32", "prefill"), 64)
    for mode, read in enumerate(found.reads):
        wanted = found.write.plus(read.times(1 / every)).executed_forward
        assert counted(key, 64, phase="prefill", every=every, mode=mode) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("window", [None, 1, 5, 40])
def test_attention_counts_visible_pairs(window: int | None) -> None:
    tokens, heads, size = 33, 4, 16
    params = {"heads": heads, "head_size": size, "window": window}
    pairs = sum(min(t + 1, window or tokens) for t in range(tokens))
    found = cost("attention", params, Shape(1, tokens), 64)
    projections = 2 * 64 * heads * size * 2
    assert found.reads[0].forward == pytest.approx(projections + 4 * heads * size * pairs / tokens)
    last = cost("attention", params, Shape(1, tokens, "float32", "decode"), 64)
    assert last.reads[0].forward == projections + 4 * heads * size * min(tokens, window or tokens)


def test_recurrences_count_pairs_inside_chunks_of_64() -> None:
    tokens = 150
    pairs = sum(t % 64 + 1 for t in range(tokens))
    heads, key, value = 4, 16, 32
    params = {"heads": heads, "head_size": value, "state_size": key, "gate": False, "short_conv": None}
    found = cost("mamba2", params, Shape(1, tokens), 64)
    projections = 2 * 64 * (key + heads * value)
    steps, update = 2 * 64 * heads, 2 * heads * key * value
    inside = 2 * (key + heads * value) * pairs / tokens + 2 * heads * key * value
    assert found.write.forward == pytest.approx(projections + steps + update + inside)
    assert found.reads[0].forward == pytest.approx(projections)


@pytest.mark.parametrize("key", ["mamba2", "gated_deltanet", "swiglu", "experts"])
def test_linear_mixers_cost_the_same_at_any_length(key: str) -> None:
    short, long = (cost(*LARGE[key], Shape(1, tokens), 64) for tokens in (128, 4096))
    # Algorithmic FLOPs; what is executed and kept differs by padding at the ends.
    for one, other in zip((short.write, *short.reads), (long.write, *long.reads), strict=True):
        assert one[:2] == other[:2]


def test_attention_is_affine_in_the_length() -> None:
    a, b, c = (cost(*LARGE["attention"], Shape(1, t), 64).reads[0].forward for t in (100, 200, 300))
    assert c - b == pytest.approx(b - a)
    assert b > a


@pytest.mark.parametrize("key", SEQUENCE)
def test_state_of_decode_grows_only_with_a_cache(key: str) -> None:
    name, params = SEQUENCE[key]
    at = [cost(name, params, Shape(1, t, "float32", "decode")).state_bytes for t in (64, 128)]
    cached = any(part in key for part in ("attention", "multi")) and key not in (
        "attention windowed",
        "attention to the strongest",
        "multi three",
    )
    assert (at[1] > at[0]) == cached


def test_costs_take_microseconds() -> None:
    config = PARTS.config("mixer", "mamba2", {})
    found = PARTS.factory("mixer", "mamba2").cost
    shape = Shape(1, 64)
    found(config, 64, shape, 1, PARTS)
    start = time.perf_counter()
    for _ in range(200):
        found(config, 64, shape, 1, PARTS)
    # A bound with room for a busy machine; it is about 20 microseconds.
    assert (time.perf_counter() - start) / 200 < 1e-3


@pytest.mark.parametrize("key", ALL)
def test_a_meta_device_build_has_the_same_parameters(key: str) -> None:
    name, params = ALL[key]
    config = PARTS.config("mixer", name, params)
    with torch.device("meta"):
        meta = PARTS.factory("mixer", name)(config, MixerBuild(D_MODEL, parts=PARTS))
    real = build(name, params)
    shapes = {n: p.shape for n, p in meta.named_parameters()}
    assert shapes == {n: p.shape for n, p in real.named_parameters()}
    assert with_mode(real, context(1, 2)).positions_BT.shape == (1, 2)
