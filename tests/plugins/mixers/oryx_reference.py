"""Oryx's block as its equations, token by token and head by head (arXiv 2605.28769, section 3 and appendix B).

Nothing here is shared with the mixers but the names of their weights. Legend: T tokens, D model width, K head size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-6


def oryx_reference(mixer: Any, x_TD: Tensor, mode_T: list[int]) -> Tensor:
    """y_TD of a multi-mixer whose token t is read by reader ``mode_T[t]``."""
    c, T = mixer.config, len(x_TD)
    heads, size = c.heads, c.head_size
    readers = [choice.name for choice in c.readers]
    parts = projected(mixer, x_TD)
    outputs = []
    for i, reader in enumerate(mixer.readers):
        k_TC, v_TC, q_TC = parts["k"][i], parts["v"][i], parts["q"][i]
        rotates = c.rope == "all" or (c.rope == "attention" and readers[i] == "attention")
        traced = [reader.config.writes == "always" or mode == i for mode in mode_T]
        read = READERS[readers[i]]
        rows = []
        for h in range(heads):
            own = slice(h * size, (h + 1) * size)
            q, k, v = q_TC[:, own], k_TC[:, own], v_TC[:, own]
            if rotates:
                q, k = turned(q, c.rope_theta, c.rope_fraction), turned(k, c.rope_theta, c.rope_fraction)
            rows.append(read(reader, h, q, k, v, x_TD, traced))
        outputs.append(torch.stack(rows, 1))
    o_THK = torch.stack([outputs[mode_T[t]][t] for t in range(T)])
    return finished(mixer, o_THK, parts["gate"]) @ mixer.projections.output.weight.T


def projected(mixer: Any, x_TD: Tensor) -> dict[str, Any]:
    """Keys, values and queries of each reader after convolution and activation, and the gate."""
    c = mixer.config
    width, count = c.heads * c.head_size, len(c.readers)
    streams = 1 if c.tied_kv else count
    rest = list((x_TD @ mixer.projections.input.weight.T).split(width, -1))
    kv = [rest.pop(0) for _ in range(2 * streams)]
    queries = [rest.pop(0) for _ in range(1 if c.tied_queries else count)]
    gate = rest.pop(0) if c.gate else None
    assert not rest
    if c.short_conv is not None:
        written = kv + (queries if c.short_conv.on == "qkv" else [])
        bias = mixer.conv_bias_C
        biases = [None] * len(written) if bias is None else bias.split(width)
        taps = mixer.conv_CW.split(width)
        written = [convolved(u, w, b) for u, w, b in zip(written, taps, biases, strict=True)]
        kv, queries = written[: len(kv)], written[len(kv) :] or queries
    kv = [activated(u, c.kv_activation) for u in kv]
    of_query = c.q_activation if isinstance(c.q_activation, tuple) else [c.q_activation] * count
    return {
        "k": kv[::2] * (count // streams),
        "v": kv[1::2] * (count // streams),
        "q": [activated(queries[i % len(queries)], of_query[i]) for i in range(count)],
        "gate": gate,
    }


def finished(mixer: Any, o_THK: Tensor, gate_TC: Tensor | None) -> Tensor:
    """Norm (over everything or over each head) and gate, in either order."""
    c, weight = mixer.config, mixer.norm_weight

    def normed(o_TC: Tensor) -> Tensor:
        if c.norm == "none":
            return o_TC
        o = o_TC.unflatten(1, (c.heads, -1)) if c.norm == "head" else o_TC
        return (o * (o.square().mean(-1, keepdim=True) + EPS).rsqrt() * weight).reshape(o_TC.shape)

    o_TC = o_THK.flatten(1)
    if gate_TC is None:
        return normed(o_TC)
    if c.norm_place == "before_gate":
        return normed(o_TC) * F.silu(gate_TC)
    return normed(o_TC * F.silu(gate_TC))


def activated(x: Tensor, activation: str) -> Tensor:
    return F.silu(x) if activation == "silu" else x


def convolved(u_TC: Tensor, taps_CW: Tensor, bias_C: Tensor | None) -> Tensor:
    """Each channel's last W values, weighted; the last tap is the token's own."""
    width, rows = taps_CW.shape[1], []
    for t in range(len(u_TC)):
        y_C = torch.zeros_like(u_TC[0]) if bias_C is None else bias_C.clone()
        for w in range(width):
            if t - (width - 1 - w) >= 0:
                y_C = y_C + taps_CW[:, w] * u_TC[t - (width - 1 - w)]
        rows.append(y_C)
    return torch.stack(rows)


def turned(x_TK: Tensor, theta: float, fraction: float) -> Tensor:
    """Rotary positions as complex numbers, on the first ``fraction`` of the channels."""
    rotated = int(x_TK.shape[1] * fraction)
    half = rotated // 2
    rate = theta ** (-torch.arange(half, dtype=torch.float64) * 2 / rotated)
    angle = torch.arange(len(x_TK), dtype=torch.float64)[:, None] * rate
    pairs = torch.complex(x_TK[:, :half], x_TK[:, half:rotated]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((pairs.real, pairs.imag, x_TK[:, rotated:]), -1)


def attention(
    reader: Any, head: int, q: Tensor, k: Tensor, v: Tensor, x_TD: Tensor, traced: list[bool]
) -> Tensor:
    if reader.config.l2_norm != "none":
        k = unit(k)
    if reader.config.l2_norm == "qk":
        q = unit(q)
    rows = []
    for t in range(len(q)):
        seen = [j for j in range(t + 1) if traced[j]]
        if not seen:
            rows.append(torch.zeros_like(v[0]))
            continue
        weights = (k[seen] @ q[t] / q.shape[1] ** 0.5).softmax(0)
        rows.append(weights @ v[seen])
    return torch.stack(rows)


def mamba2(
    reader: Any, head: int, q: Tensor, k: Tensor, v: Tensor, x_TD: Tensor, traced: list[bool]
) -> Tensor:
    dt_T = F.softplus(x_TD @ reader.dt_proj.weight[head] + reader.dt_bias[head])
    state, rows = torch.zeros(k.shape[1], v.shape[1], dtype=v.dtype), []
    for t in range(len(q)):
        if traced[t]:
            decay = torch.exp(-reader.A_log[head].exp() * dt_T[t])
            state = decay * state + torch.outer(k[t], dt_T[t] * v[t])
        skip = 0.0 if reader.D_H is None else reader.D_H[head] * v[t]
        rows.append(q[t] @ state + skip)
    return torch.stack(rows)


def gated_deltanet(
    reader: Any, head: int, q: Tensor, k: Tensor, v: Tensor, x_TD: Tensor, traced: list[bool]
) -> Tensor:
    if reader.config.qk_l2_norm:
        q, k = unit(q), unit(k)
    heads = len(reader.A_log)
    a_T = x_TD @ reader.ab_proj.weight[head] + reader.dt_bias[head]
    b_T = (x_TD @ reader.ab_proj.weight[heads + head]).sigmoid()
    state, rows = torch.zeros(k.shape[1], v.shape[1], dtype=v.dtype), []
    eye = torch.eye(k.shape[1], dtype=v.dtype)
    for t in range(len(q)):
        if traced[t]:
            decay = torch.exp(-reader.A_log[head].exp() * F.softplus(a_T[t]))
            erased = decay * (eye - b_T[t] * torch.outer(k[t], k[t])) @ state
            state = erased + b_T[t] * torch.outer(k[t], v[t])
        rows.append(q[t] @ state / q.shape[1] ** 0.5)
    return torch.stack(rows)


def unit(x: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) + EPS).rsqrt()


READERS = {"attention": attention, "mamba2": mamba2, "gated_deltanet": gated_deltanet}
