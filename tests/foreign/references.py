"""Other projects' models written out from their papers' equations on raw tensors, token by token, in float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> Weights:
    """float32 weights far from any start, so that every one of them shows."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        found[name] = (1 + 0.2 * noise) if "norm" in name else 0.4 * noise
    return found


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def convolved(x_BTC: Tensor, weight_C1W: Tensor) -> Tensor:
    """Causal depthwise convolution, then SiLU."""
    T, W = x_BTC.shape[1], weight_C1W.shape[-1]
    padded = F.pad(x_BTC, (0, 0, W - 1, 0))
    return F.silu(sum(padded[:, i : i + T] * weight_C1W[:, 0, i] for i in range(W)))


def swiglu(x: Tensor, w: Weights, at: str) -> Tensor:
    hidden = F.silu(x @ w[f"{at}gate_proj.weight"].T) * (x @ w[f"{at}up_proj.weight"].T)
    return hidden @ w[f"{at}down_proj.weight"].T


def gated_delta_net(x_BTD: Tensor, w: Weights, at: str, key_heads: int, eps: float) -> Tensor:
    """S = a (I - b k k^T) S + b k v^T, o = q S / sqrt(K), normalised per head and gated."""
    H = w[f"{at}A_log"].shape[0]
    q, k, v = (
        convolved(x_BTD @ w[f"{at}{n}_proj.weight"].T, w[f"{at}{n}_conv1d.weight"]).unflatten(-1, (heads, -1))
        for n, heads in (("q", key_heads), ("k", key_heads), ("v", H))
    )
    q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    q, k = (t.repeat_interleave(H // key_heads, 2) for t in (q, k))
    decay = (-w[f"{at}A_log"].exp() * F.softplus(x_BTD @ w[f"{at}a_proj.weight"].T + w[f"{at}dt_bias"])).exp()
    beta = (x_BTD @ w[f"{at}b_proj.weight"].T).sigmoid()
    S = x_BTD.new_zeros(*q.shape[:1], H, q.shape[-1], v.shape[-1])
    outputs = []
    for t in range(x_BTD.shape[1]):
        S = S * decay[:, t, :, None, None]
        seen = (k[:, t, :, :, None] * S).sum(-2)
        S = S + k[:, t, :, :, None] * ((v[:, t] - seen) * beta[:, t, :, None])[:, :, None]
        outputs.append((q[:, t, :, :, None] * S).sum(-2) * q.shape[-1] ** -0.5)
    o = rms(torch.stack(outputs, 1), w[f"{at}o_norm.weight"], eps)
    o = o * F.silu((x_BTD @ w[f"{at}g_proj.weight"].T).unflatten(-1, (H, -1)))
    return o.flatten(-2) @ w[f"{at}o_proj.weight"].T


def delta_net_shapes(at: str, D: int, keys: int, values: int, K: int, V: int) -> dict[str, tuple[int, ...]]:
    """Tensors of one layer of fla's Gated DeltaNet, by key."""
    widths = {"q": keys * K, "k": keys * K, "v": values * V}
    return {
        **{f"{at}{n}_proj.weight": (width, D) for n, width in widths.items()},
        **{f"{at}{n}_conv1d.weight": (width, 1, 4) for n, width in widths.items()},
        **{f"{at}{n}_proj.weight": (values, D) for n in ("a", "b")},
        f"{at}A_log": (values,),
        f"{at}dt_bias": (values,),
        f"{at}g_proj.weight": (values * V, D),
        f"{at}o_norm.weight": (V,),
        f"{at}o_proj.weight": (D, values * V),
    }


def mlp_shapes(at: str, D: int, hidden: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{at}gate_proj.weight": (hidden, D),
        f"{at}up_proj.weight": (hidden, D),
        f"{at}down_proj.weight": (D, hidden),
    }


def attended(x_BTD: Tensor, w: Weights, at: str, heads: int) -> Tensor:
    """Causal attention with rotary positions, halves turned against each other, base 10000."""
    B, T, D = x_BTD.shape
    K = D // heads
    angle = torch.arange(T, dtype=x_BTD.dtype)[:, None] * 10000.0 ** (
        -torch.arange(0, K, 2, dtype=x_BTD.dtype) / K
    )
    turn = torch.polar(torch.ones_like(angle), angle)

    def turned(x: Tensor) -> Tensor:
        pair = torch.complex(*x.chunk(2, -1)) * turn
        return torch.cat((pair.real, pair.imag), -1)

    q, k, v = (
        (x_BTD @ w[f"{at}{n}.weight"].T).view(B, T, heads, K).transpose(1, 2)
        for n in ("q_proj", "kv_proj.k_proj", "kv_proj.v_proj")
    )
    scores = turned(q) @ turned(k).mT / K**0.5
    scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ w[f"{at}out_proj.weight"].T


def amor_stack(
    x_BTD: Tensor, w: Weights, *, blocks: int, heads: int, first_eps: float, classic: bool, kappa: float
) -> tuple[Tensor, float]:
    """(logits, share of tokens that fired) from the backbone's output; fact sheet, section 2."""
    E, fired = w["embed.weight"], []
    h = rms(x_BTD, w["norm_f.weight"], first_eps) if classic else x_BTD
    for i in range(blocks):
        at = f"amor_blocks.{i}."
        if i:
            z = rms(h, w[f"amor_pre_norms.{i}.weight"], 1e-6)
        else:
            z = h if classic else rms(h, w["norm_f.weight"], first_eps)
        p = (z @ E.T).softmax(-1)
        entropy = -(p * (p + 1e-10).log()).sum(-1) / torch.tensor(float(len(E)), dtype=p.dtype).log()
        tau = w[f"{at}gate.running_threshold"] + kappa * w[f"{at}gate.running_std"]
        gate = (entropy > tau).to(z.dtype)
        fired.append(gate.mean().item())
        alpha = w[f"{at}raw_alpha"].clamp(min=-1).sigmoid()
        h = h + gate[..., None] * alpha * attended(z, w, at, heads)
    return rms(h, w["final_norm.weight"], 1e-6) @ E.T, sum(fired) / blocks
