"""Depth attention: a token reads what it was at earlier depths; one state for a pass, shared by all depths."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from crossbreed.core.contracts.context import Recorder
from crossbreed.core.contracts.mixer import State
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Shape
from tests.plugins.mixers.helpers import D_MODEL, PARTS, build, context, random_input

DEPTHS = 4
CASES: dict[str, dict[str, Any]] = {
    "plain": {"heads": 2, "head_size": 8},
    "grouped": {"heads": 4, "kv_heads": 2, "head_size": 6, "depth_encoding": "index", "scale": 0.9},
    "earlier only": {"heads": 2, "head_size": 6, "depth_encoding": "none", "sees_current": False},
    "of experts": {
        "heads": 2,
        "head_size": 8,
        "projection_experts": {"experts": 3, "router_key": 4, "gate_norm": "none"},
    },
}
ALL = pytest.mark.parametrize("key", CASES)


def case(key: str, depths: int = DEPTHS, **options: Any) -> Any:
    return build("depth_attention", CASES[key], depths=depths, **options)


def stream(batch: int, tokens: int, depths: int = DEPTHS) -> list[Tensor]:
    """The stream before each depth."""
    return [random_input(batch, tokens, seed=10 + depth) for depth in range(depths)]


def at_depths(
    mixer: Any, xs: list[Tensor], read: list[Tensor] | None = None, **fields: Any
) -> tuple[list[Tensor], State]:
    """The outputs of all depths over one piece, as a stage runs them, and the state at the end."""
    B, T, _ = xs[0].shape
    state = mixer.init_state(B * T, slots=len(xs), dtype=xs[0].dtype)
    outputs = []
    for depth, x in enumerate(xs):
        at = context(B, T, depth=depth, depths=len(xs), **fields)
        y, state = mixer(x, at, state, None if read is None else read[depth])
        outputs.append(y)
    return outputs, state


def turned(x_HK: Tensor, depth: int, depths: int, encoding: str, theta: float = 100.0) -> Tensor:
    """The depth rotation as complex numbers, pair by pair."""
    if encoding == "none":
        return x_HK
    halves = [(x_HK, depth)]
    if encoding == "rose":
        past, left = x_HK.chunk(2, -1)
        halves = [(past, depth), (left, depths - depth)]
    found = []
    for part, steps in halves:
        pairs = part.shape[-1] // 2
        angle = torch.tensor([steps * theta ** (-i / pairs) for i in range(pairs)], dtype=torch.float64)
        z = torch.complex(part[..., :pairs], part[..., pairs:]) * torch.polar(torch.ones_like(angle), angle)
        found.append(torch.cat((z.real, z.imag), -1))
    return torch.cat(found, -1)


def matrices(mixer: Any, u: Tensor, depth: int, depths: int) -> tuple[Tensor, Tensor]:
    """The input and output matrix of one token: plain, or the sum of its experts' by its own decision."""
    experts = mixer.config.projection_experts
    if experts is None:
        return mixer.projections.input.weight.T, mixer.projections.output.weight.T
    router = mixer.projections.routers["all"]
    query = turned(router.query_RD @ u, depth, depths, "rose")
    score = router.key_ER @ query
    first = int(score.argmax())
    weights = {first: score[first].sigmoid(), experts.experts: torch.tensor(0.5)}
    return (
        sum(w * mixer.projections.input_EDC[e] for e, w in weights.items()),  # type: ignore[return-value]
        sum(w * mixer.projections.output_ECD[e] for e, w in weights.items()),
    )


def by_loops(mixer: Any, xs: list[Tensor]) -> list[Tensor]:
    """Section 3 of Dreamer's sheet, token by token and head by head."""
    c, L = mixer.config, len(xs)
    H, G, K = c.heads, c.kv_heads or c.heads, c.head_size
    outputs = [torch.zeros_like(x) for x in xs]
    for b in range(xs[0].shape[0]):
        for t in range(xs[0].shape[1]):
            keys, values = [], []
            for depth in range(L):
                u = xs[depth][b, t]
                w_in, w_out = matrices(mixer, u, depth, L)
                k, v, q = (u @ w_in).split([G * K, G * K, H * K])
                keys.append(turned(k.view(G, K), depth, L, c.depth_encoding))
                values.append(v.view(G, K))
                q = turned(q.view(H, K), depth, L, c.depth_encoding)
                seen = range(depth + 1 if c.sees_current else depth)
                if not seen:
                    continue
                heads = []
                for h in range(H):
                    g = h // (H // G)
                    scale = c.scale or 1 / math.sqrt(K)
                    score = torch.stack([scale * (q[h] @ keys[j][g]) for j in seen]).softmax(0)
                    heads.append(sum(score[j] * values[j][g] for j in seen))
                outputs[depth][b, t] = torch.cat(heads) @ w_out  # type: ignore[arg-type]
    return outputs


@ALL
def test_it_is_the_formula_written_out_in_loops(key: str) -> None:
    mixer, xs = case(key), stream(2, 5)
    with torch.no_grad():
        for y, wanted in zip(at_depths(mixer, xs)[0], by_loops(mixer, xs), strict=True):
            torch.testing.assert_close(y, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("size", [16, 24, 48, 96])
@pytest.mark.parametrize("tokens", [1, 63, 65])
def test_tokens_do_not_see_each_other(size: int, tokens: int) -> None:
    mixer = build("depth_attention", {"heads": 2, "head_size": size}, depths=3, scale=3.0)
    xs = stream(1, tokens, 3)
    with torch.no_grad():
        whole = at_depths(mixer, xs)[0]
        for t in {0, tokens // 2, tokens - 1}:
            alone = at_depths(mixer, [x[:, t : t + 1] for x in xs], phase="decode")[0]
            for y, one in zip(whole, alone, strict=True):
                torch.testing.assert_close(y[:, t : t + 1], one, rtol=0, atol=1e-11)


@ALL
def test_no_depth_sees_a_later_one(key: str) -> None:
    mixer, xs = case(key), stream(1, 6)
    changed = [*xs[:2], *stream(1, 6, 6)[4:]]
    with torch.no_grad():
        before, after = at_depths(mixer, xs)[0], at_depths(mixer, changed)[0]
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert (before[3] - after[3]).abs().max() > 1e-3


def test_depth_indices_matter_before_the_rotation_and_places_in_the_cache_do_not() -> None:
    mixer, xs = case("plain"), stream(1, 6)
    with torch.no_grad():
        _, state = at_depths(mixer, xs[:3] + xs[3:])
        last = context(1, 6, depth=3, depths=4)
        straight, _ = mixer(xs[3], last, state)
        swapped = {**state, "0.k.0": state["0.k.2"], "0.k.2": state["0.k.0"]}
        swapped |= {"0.v.0": state["0.v.2"], "0.v.2": state["0.v.0"]}
        shuffled, _ = mixer(xs[3], last, swapped)
        torch.testing.assert_close(shuffled, straight, rtol=0, atol=1e-13)
        # The same three vectors, told that they stand at depths 2, 1 and 0.
        relabelled, state = at_depths(mixer, [xs[2], xs[1], xs[0], xs[3]])
    assert (relabelled[3] - straight).abs().max() > 1e-3


@ALL
def test_an_unread_depth_is_zero_and_seen_by_later_ones(key: str) -> None:
    mixer, xs = case(key), stream(3, 7)
    generator = torch.Generator().manual_seed(1)
    read = [torch.rand(3, 7, generator=generator) < 0.5 for _ in xs]
    with torch.no_grad():
        whole, some = at_depths(mixer, xs)[0], at_depths(mixer, xs, read)[0]
        ones = [x[:, :1] for x in xs]
        decoded = at_depths(mixer, ones, [r[:, :1] for r in read], phase="decode")[0]
    for y, part, one, mask in zip(whole, some, decoded, read, strict=True):
        wanted = y.masked_fill(~mask[..., None], 0.0)
        torch.testing.assert_close(part, wanted, rtol=0, atol=1e-12)
        torch.testing.assert_close(one, wanted[:, :1], rtol=0, atol=1e-12)


@ALL
def test_gradients_reach_every_parameter_through_all_depths(key: str) -> None:
    mixer, xs = case(key), [x.requires_grad_() for x in stream(2, 30)]
    outputs, state = at_depths(mixer, xs, phase="train")
    outputs[-1].square().sum().backward()
    for name, parameter in mixer.named_parameters():
        assert parameter.grad is not None, name
        # One routed expert without a norm keeps its router's gradient.
        assert parameter.grad.abs().max() > 0, name
    assert all(x.grad is not None and x.grad.abs().max() > 0 for x in xs)
    assert mixer.no_weight_decay() == frozenset()
    assert state["0.k.0"].requires_grad


def test_autocast_to_bfloat16_stays_close_in_both_passes() -> None:
    mixer = case("grouped", dtype=torch.float32, scale=3.0)
    found = []
    for enabled in (False, True):
        mixer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            outputs, _ = at_depths(mixer, [x.float() for x in stream(2, 9)], phase="train")
        outputs[-1].float().square().mean().backward()
        found.append((outputs[-1].float(), *(p.grad.clone() for p in mixer.parameters())))
    for exact, close in zip(*found, strict=True):
        assert (close - exact).abs().max() < 0.05 * exact.abs().max()


@ALL
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_state_is_the_declared_one_and_grows_with_depths_alone(key: str, dtype: str) -> None:
    mixer = case(key, dtype=getattr(torch, dtype))
    params = CASES[key]
    cost = PARTS.factory("mixer", "depth_attention").cost(
        PARTS.config("mixer", "depth_attention", params), D_MODEL, Shape(1, 99, dtype), DEPTHS, PARTS
    )
    empty = mixer.init_state(10, dtype=getattr(torch, dtype))
    assert [spec.name for spec in mixer.state_specs()] == list(empty)
    assert {spec.scope for spec in mixer.state_specs()} == {"pass"}
    # Nothing is allocated before it is written.
    assert all(t.untyped_storage().nbytes() == t.element_size() for t in empty.values())
    with torch.no_grad():
        for tokens in (1, 5):
            xs = [x.to(getattr(torch, dtype)) for x in stream(2, tokens)]
            _, state = at_depths(mixer, xs)
            size = sum(t.numel() * t.element_size() for t in state.values())
            assert size == 2 * tokens * DEPTHS * cost.scratch_bytes
            assert {n: t.dtype for n, t in state.items()} == {n: t.dtype for n, t in empty.items()}
    assert cost.state_bytes == 0


@ALL
@pytest.mark.parametrize("phase", ["train", "prefill", "decode"])
def test_executed_flops_are_those_issued_over_all_depths(key: str, phase: str) -> None:
    mixer = case(key, dtype=torch.float32, scale=1.0)
    tokens = 1 if phase == "decode" else 20
    xs = [x.float() for x in stream(2, tokens)]
    counter = FlopCounterMode(display=False)
    with torch.set_grad_enabled(phase == "train"), counter:
        if phase == "train":
            xs = [x.requires_grad_() for x in xs]
        outputs, _ = at_depths(mixer, xs, phase=phase)
        if phase == "train":
            torch.stack(outputs).square().sum().backward()
    cost = PARTS.factory("mixer", "depth_attention").cost(
        PARTS.config("mixer", "depth_attention", CASES[key]),
        D_MODEL,
        Shape(2, tokens, "float32", phase),  # type: ignore[arg-type]
        DEPTHS,
        PARTS,
    )
    work = cost.write.plus(cost.reads[0])
    wanted = work.executed_training if phase == "train" else work.executed_forward
    counted = counter.get_total_flops() / (2 * tokens * DEPTHS)
    if key == "earlier only" and phase == "train":
        # Nobody reads the first depth's queries or the last one's keys and values: no gradient is computed for them.
        unread = 2 * 2 * D_MODEL * 12 * 3 / DEPTHS + 2 * D_MODEL * 12 / DEPTHS
        wanted -= unread
    assert counted == pytest.approx(wanted, rel=1e-9)
    assert cost.parameters == sum(p.numel() for p in mixer.parameters())


def test_algorithmic_flops_count_the_pairs_of_depths_that_are_seen() -> None:
    heads, size, L = 2, 8, 5
    cost = PARTS.factory("mixer", "depth_attention").cost(
        PARTS.config("mixer", "depth_attention", {"heads": heads, "head_size": size}), 12, Shape(1, 9), L
    )
    pairs = sum(1 for i in range(L) for j in range(L) if j <= i)
    projections = 2 * 2 * 12 * heads * size
    assert cost.reads[0].forward == projections + 4 * heads * size * pairs / L
    # Dreamer's sheet: 2 H d L (L + 1) for all depths.
    assert (cost.reads[0].forward - projections) * L == 2 * heads * size * L * (L + 1)


def test_a_detailed_recorder_gets_the_mean_weights_of_earlier_depths() -> None:
    mixer, xs = case("plain"), stream(2, 6)
    recorder = Recorder(detail=True)
    counted = torch.arange(6).expand(2, 6) >= 2
    with torch.no_grad():
        at_depths(mixer, xs, recorder=recorder, loss_mask_BT=counted)
        at_depths(mixer, xs, recorder=Recorder())
    facts = [found for _, found in recorder.records if "depth_weight_HS" in found]
    assert [f["depth_weight_HS"].shape for f in facts] == [(2, depth + 1) for depth in range(DEPTHS)]
    assert [int(f["depth_tokens"]) for f in facts] == [8] * DEPTHS
    for found in facts:
        torch.testing.assert_close(found["depth_weight_HS"].sum(-1) / 8, torch.ones(2, dtype=torch.float64))
    plain = Recorder()
    with torch.no_grad():
        at_depths(mixer, xs, recorder=plain)
    assert plain.records == []


def test_a_depth_that_sees_nothing_is_recorded_with_no_token() -> None:
    recorder = Recorder(detail=True)
    with torch.no_grad():
        mixer = build("depth_attention", {"sees_current": False}, depths=DEPTHS)
        at_depths(mixer, stream(2, 6), recorder=recorder)
    facts = [found for _, found in recorder.records if "depth_weight_HS" in found]
    assert [f["depth_weight_HS"].shape for f in facts] == [(2, depth) for depth in range(DEPTHS)]
    assert [int(f["depth_tokens"]) for f in facts] == [0, *[12] * (DEPTHS - 1)]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("heads", 1),
        ("kv_heads", 1),
        ("head_size", 8),
        ("depth_encoding", "index"),
        ("depth_encoding", "none"),
        ("depth_theta", 10.0),
        ("sees_current", False),
        ("scale", 1.0),
        ("projection_experts", {}),
    ],
)
def test_no_option_is_ignored(option: str, value: Any) -> None:
    xs = stream(1, 6)
    with torch.no_grad():
        before, _ = at_depths(build("depth_attention", {}, depths=DEPTHS), xs)
        after, _ = at_depths(build("depth_attention", {option: value}, depths=DEPTHS), xs)
    assert not torch.allclose(before[-1], after[-1])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"head_size": 6}, "head_size must be a multiple of 4 for depth_encoding 'rose'"),
        ({"head_size": 5, "depth_encoding": "index"}, "multiple of 2 for depth_encoding 'index'"),
        ({"kv_heads": 3}, r"kv_heads \(3\) must divide heads \(2\)"),
        ({"depth_encoding": "rosy"}, "'rose', 'index' or 'none'"),
        ({"projection_experts": {"experts": 1, "top_k": 3}}, "2 routed experts, but there are only 1"),
        ({"projection_experts": {"expert": 1}}, "did you mean 'experts'"),
    ],
)
def test_illegal_settings_are_sentences(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PARTS.config("mixer", "depth_attention", params)
