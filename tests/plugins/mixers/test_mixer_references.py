"""Outputs equal published implementations with copied weights, and several readers equal one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from crossbreed.core.contracts.router import Decision
from crossbreed.core.errors import ConfigError
from tests.plugins.mixers.helpers import build, context, in_pieces, random_input

D_MODEL = 24


def perturb(module: torch.nn.Module) -> None:
    """Give every parameter a value that is not its default."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("tokens", [1, 5, 64, 70])
def test_mamba2_equals_transformers(tokens: int) -> None:
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    heads, size, state = 6, 8, 10
    config = Mamba2Config(
        hidden_size=D_MODEL,
        num_heads=heads,
        head_dim=size,
        state_size=state,
        expand=2,
        n_groups=1,
        chunk_size=16,
        layer_norm_epsilon=1e-6,
        num_hidden_layers=1,
    )
    theirs = Mamba2Mixer(config, layer_idx=0).eval()
    perturb(theirs)
    ours = build(
        "mamba2",
        {"heads": heads, "head_size": size, "state_size": state},
        d_model=D_MODEL,
        dtype=torch.float32,
    )
    inner = heads * size
    with torch.no_grad():
        z, x, b, c, dt = theirs.in_proj.weight.split([inner, inner, state, state, heads])
        ours.projections.input.weight.copy_(torch.cat((b, x, c, z)))
        for ours_conv, theirs_conv in (
            (ours.conv_CW, theirs.conv1d.weight.squeeze(1)),
            (ours.conv_bias_C, theirs.conv1d.bias),
        ):
            x, b, c = theirs_conv.split([inner, state, state])
            ours_conv.copy_(torch.cat((b, x, c)))
        reader = ours.readers[0]
        reader.dt_proj.weight.copy_(dt)
        reader.dt_bias.copy_(theirs.dt_bias)
        reader.A_log.copy_(theirs.A_log)
        reader.D_H.copy_(theirs.D)
        ours.norm_weight.copy_(theirs.norm.weight)
        ours.projections.output.weight.copy_(theirs.out_proj.weight)
        inputs = random_input(2, tokens, D_MODEL).float()
        wanted = theirs(inputs)
        y, _ = ours(inputs, context(2, tokens), None)
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
        y, _ = in_pieces(ours, inputs, context(2, tokens), [tokens // 2] if tokens > 1 else [])
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
    assert wanted.abs().max() > 0.1


@pytest.mark.parametrize("tokens", [1, 5, 64, 70])
def test_gated_deltanet_equals_qwen3_next(tokens: int) -> None:
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    keys, values, key_size, value_size = 2, 4, 8, 12
    config = Qwen3NextConfig(
        hidden_size=D_MODEL,
        linear_num_key_heads=keys,
        linear_num_value_heads=values,
        linear_key_head_dim=key_size,
        linear_value_head_dim=value_size,
        linear_conv_kernel_dim=4,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    theirs = Qwen3NextGatedDeltaNet(config, layer_idx=0).eval()
    perturb(theirs)
    ours = build(
        "gated_deltanet",
        {"heads": values, "key_heads": keys, "key_size": key_size, "value_size": value_size},
        d_model=D_MODEL,
        dtype=torch.float32,
    )
    shared = values // keys * value_size
    with torch.no_grad():
        rows = theirs.in_proj_qkvz.weight.view(keys, -1, D_MODEL).split(
            [key_size, key_size, shared, shared], 1
        )
        q, k, v, z = (part.flatten(0, 1) for part in rows)
        b, a = (p.flatten(0, 1) for p in theirs.in_proj_ba.weight.view(keys, -1, D_MODEL).chunk(2, 1))
        ours.projections.input.weight.copy_(torch.cat((k, v, q, z)))
        width = keys * key_size
        q, k, v = theirs.conv1d.weight.squeeze(1).split([width, width, values * value_size])
        ours.conv_CW.copy_(torch.cat((k, v, q)))
        reader = ours.readers[0]
        reader.ab_proj.weight.copy_(torch.cat((a, b)))
        reader.A_log.copy_(theirs.A_log)
        reader.dt_bias.copy_(theirs.dt_bias)
        ours.norm_weight.copy_(theirs.norm.weight)
        ours.projections.output.weight.copy_(theirs.out_proj.weight)
        inputs = random_input(2, tokens, D_MODEL).float()
        wanted = theirs(inputs)
        y, _ = ours(inputs, context(2, tokens), None)
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
        y, _ = in_pieces(ours, inputs, context(2, tokens), [tokens // 2] if tokens > 1 else [])
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
    assert wanted.abs().max() > 0.1


def test_attention_equals_a_softmax_written_out() -> None:
    heads, groups, size, tokens = 4, 2, 6, 11
    mixer = build("attention", {"heads": heads, "kv_heads": groups, "head_size": size})
    x = random_input(1, tokens)
    y, _ = mixer(x, context(1, tokens), None)
    k, v, q = (x[0] @ mixer.projections.input.weight.T).split(
        [groups * size, groups * size, heads * size], -1
    )
    outputs = []
    for h in range(heads):
        g = h // (heads // groups)
        columns = slice(g * size, (g + 1) * size)
        query, key = (turned(t) for t in (q[:, h * size : (h + 1) * size], k[:, columns]))
        scores = query @ key.T / size**0.5
        hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        outputs.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v[:, columns])
    wanted = torch.cat(outputs, -1) @ mixer.projections.output.weight.T
    torch.testing.assert_close(y[0], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("source", ["stream", "embeddings"])
@pytest.mark.parametrize("top_k", [1, 3, 11, None])
def test_attention_to_the_strongest_keys_of_stream_or_embeddings_is_the_written_sum(
    source: str, top_k: int | None
) -> None:
    """AMOR's first version: the top keys alone, keys and values from what the recurrence made or from embeddings."""
    heads, size, tokens = 2, 6, 11
    params = {"heads": heads, "head_size": size, "rope_fraction": 0.0, "top_k": top_k, "kv_from": source}
    mixer, x = build("attention", params), random_input(1, tokens)
    embedded = 0.02 * random_input(1, tokens, seed=5)
    y, _ = mixer(x, context(1, tokens).at(embedded_BTD=embedded), None)
    seen = x if source == "stream" else F.rms_norm(embedded, embedded.shape[-1:], eps=1e-6)
    k, v, q = mixer.projections.input.weight.detach().split([heads * size] * 3)
    wanted = torch.zeros(tokens, heads * size, dtype=torch.float64)
    for t in range(tokens):
        for h in range(heads):
            columns = slice(h * size, (h + 1) * size)
            query = q[columns] @ x[0, t]
            scores = {j: float(query @ (k[columns] @ seen[0, j])) / size**0.5 for j in range(t + 1)}
            strongest = sorted(scores, key=lambda j: -scores[j])[:top_k]
            total = sum(math.exp(scores[j]) for j in strongest)
            for j in strongest:
                wanted[t, columns] += math.exp(scores[j]) / total * (v[columns] @ seen[0, j])
    torch.testing.assert_close(y[0], wanted @ mixer.projections.output.weight.detach().T, rtol=0, atol=1e-11)


def test_keys_that_are_never_among_the_strongest_learn_nothing() -> None:
    mixer = build("attention", {"heads": 1, "head_size": 6, "rope_fraction": 0.0, "top_k": 2})
    x = random_input(1, 9).requires_grad_()
    mixer(x, context(1, 9), None)[0][0, -1].sum().backward()
    # Of nine tokens two are read at most; the last one asks.
    assert int((x.grad[0, :-1].abs().sum(-1) > 0).sum()) in (1, 2)
    assert x.grad[0, -1].abs().sum() > 0


def test_negative_eigenvalues_turn_what_was_written_before() -> None:
    """Writing one key again and again with b near 2 and no decay: what is read back swings about the values written."""
    settings = {"heads": 1, "key_size": 4, "value_size": 4, "gate": False, "norm": "none", "short_conv": None}
    read = []
    for negative in (False, True):
        mixer = build("gated_deltanet", {**settings, "negative_eigenvalues": negative})
        reader = mixer.readers[0]
        with torch.no_grad():
            reader.ab_proj.weight.zero_()
            reader.A_log.fill_(-40.0)
        k = torch.zeros(1, 5, 1, 4, dtype=torch.float64)
        k[..., 0] = 1.0
        v = torch.ones(1, 5, 1, 4, dtype=torch.float64)
        with torch.no_grad():
            o, _ = reader(k, k, v, random_input(1, 5), context(1, 5), None)
        read.append((o[0, :, 0, 0] * 2.0).tolist())
    # sigmoid(0) = 1/2: half of what is missing is written. Twice that is the whole, and is not exceeded.
    assert read[0] == pytest.approx([0.5, 0.75, 0.875, 0.9375, 0.96875])
    assert read[1] == pytest.approx([1.0] * 5)


def test_keys_from_embeddings_outside_a_model_are_refused() -> None:
    mixer = build("attention", {"heads": 1, "head_size": 6, "kv_from": "embeddings"})
    with pytest.raises(ConfigError, match="kv_from 'embeddings', but this pass has none"):
        mixer(random_input(1, 4), context(1, 4), None)


def turned(x_TK: torch.Tensor) -> torch.Tensor:
    """Rotary positions pair by pair, as complex numbers."""
    tokens, size = x_TK.shape
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * 10_000.0 ** (
        -torch.arange(size // 2, dtype=torch.float64) * 2 / size
    )
    pairs = torch.complex(x_TK[:, : size // 2], x_TK[:, size // 2 :]) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.cat((pairs.real, pairs.imag), -1)


SHARED = {"gate": True, "heads": 3}
SINGLE: dict[str, tuple[str, dict[str, Any]]] = {
    "attention in tm": (
        "attention",
        {**SHARED, "head_size": 8, "norm": "full", "short_conv": {"activation": "none"}},
    ),
    "attention in tg": (
        "attention",
        {**SHARED, "head_size": 8, "norm": "head", "short_conv": {"activation": "silu"}},
    ),
    "mamba2 in tg": (
        "mamba2",
        {
            **SHARED,
            "head_size": 8,
            "state_size": 8,
            "groups": 3,
            "norm": "head",
            "short_conv": {"on": "kv", "bias": False, "activation": "silu"},
        },
    ),
    "gated_deltanet in tg": (
        "gated_deltanet",
        {
            **SHARED,
            "key_size": 8,
            "value_size": 8,
            "norm": "head",
            "short_conv": {"on": "kv", "activation": "silu"},
        },
    ),
}


@pytest.mark.parametrize("key", SINGLE)
def test_a_multi_mixer_in_one_mode_equals_the_single_mixer(key: str) -> None:
    name, params = SINGLE[key]
    style = key.split()[-1]
    other = "gated_deltanet" if name == "attention" else "attention"
    multi = build(
        "multi_mixer",
        {"readers": [other, name], "heads": 3, "head_size": 8, "style": style, "q_activation": "none"},
    )
    single = build(name, params)
    p = multi.plan
    kv, query = p.key_width + p.value_width, p.query_width
    weight = multi.projections.input.weight
    with torch.no_grad():
        single.projections.input.weight.copy_(
            torch.cat((weight[:kv], weight[kv + query : kv + 2 * query], weight[kv + 2 * query :]))
        )
        single.conv_CW.copy_(multi.conv_CW)
        single.norm_weight.copy_(multi.norm_weight)
        single.projections.output.weight.copy_(multi.projections.output.weight)
    single.readers[0].load_state_dict(multi.readers[1].state_dict())
    x = random_input(2, 40)
    y, _ = multi(x, context(2, 40).at(mode=Decision(torch.ones(2, 40, dtype=torch.long))), None)
    wanted, _ = single(x, context(2, 40), None)
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-11)


def test_one_reader_of_a_multi_mixer_needs_no_mode() -> None:
    multi = build("multi_mixer", {"readers": ["attention"], "heads": 2, "head_size": 6})
    x = random_input(1, 10)
    y, _ = multi(x, context(1, 10), None)
    assert y.abs().max() > 0


def test_swiglu_is_the_written_formula() -> None:
    mixer, x = build("swiglu", {"hidden": 20}), random_input(1, 5)
    y, _ = mixer(x, context(1, 5), None)
    gate, up = (x @ mixer.gate_up.weight.T).chunk(2, -1)
    torch.testing.assert_close(y, (F.silu(gate) * up) @ mixer.down.weight.T, rtol=0, atol=1e-13)
