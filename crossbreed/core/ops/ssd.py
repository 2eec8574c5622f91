"""State-space duality (Dao and Gu, Transformers are SSMs, 2024, section 6): a scalar-decay recurrence in chunks.

    S_t = exp(log_decay_t) S_{t-1} + k_t^T v_t,   o_t = q_t S_t.

Inside a chunk, with D_ij the decay from after j to i, d_i the decay from the chunk's start to i and e_j the decay
from after j to its end:  O = (D * q k^T) v + d q S,  S' = d_C S + k^T (e v).
Heads that share queries and keys share the score matrix, and their values stand side by side in the state products.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.chunks import (
    check_chunk,
    chunk_decays,
    chunk_for,
    compute_dtype,
    from_chunks,
    log_decay_gradient,
    silence,
    to_chunks,
)


def ssd(
    q_BTQK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    *,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
    chunk: int = 64,
) -> tuple[Tensor, Tensor]:
    """Scalar-decay linear recurrence: S_t = exp(log_decay_t) S_{t-1} + k_t^T v_t, o_t = q_t S_t.

    Mamba-2 in these terms: q is C, k is B, v is dt * x, log_decay is dt * A; the caller adds the D skip.

    Args:
        q_BTQK, k_BTGK: queries and keys; their head counts Q and G each divide H, consecutive heads share.
        v_BTHV: values.
        log_decay_BTH: log-decays, at most 0; any finite value is safe.
        state_BHKV: state before the first token; zeros when None.
        valid_BT, reset_BT: see the package's docstring.
        chunk: a power of two of at least 16. It changes speed, not results.

    Returns:
        `o_BTHV` in the dtype of `v_BTHV`, and the state after the last token, fp32 (float64 for float64 values).

    Raises:
        ConfigError: shapes that do not fit, or a bad chunk.
    """
    _check(q_BTQK, k_BTGK, v_BTHV, log_decay_BTH, state_BHKV)
    check_chunk(chunk)
    B, T, H, V = v_BTHV.shape
    Q, G, K = q_BTQK.shape[2], k_BTGK.shape[2], k_BTGK.shape[3]
    dtype = compute_dtype(v_BTHV)
    if T == 1:
        return ssd_recurrent(
            q_BTQK, k_BTGK, v_BTHV, log_decay_BTH, state_BHKV=state_BHKV, valid_BT=valid_BT, reset_BT=reset_BT
        )
    with torch.autocast(v_BTHV.device.type, enabled=False):
        if state_BHKV is None:
            state_BHKV = v_BTHV.new_zeros(B, H, K, V, dtype=dtype)
        if valid_BT is not None:
            log_decay_BTH = log_decay_BTH.masked_fill(~valid_BT.unsqueeze(-1), 0.0)
            k_BTGK = k_BTGK.masked_fill(~valid_BT[:, :, None, None], 0.0)
        groups = math.lcm(Q, G)
        o_BTHV, state_BHKV = _SSD.apply(
            q_BTQK.repeat_interleave(groups // Q, 2) if groups > Q else q_BTQK,
            k_BTGK.repeat_interleave(groups // G, 2) if groups > G else k_BTGK,
            v_BTHV,
            log_decay_BTH,
            state_BHKV,
            silence(valid_BT, reset_BT),
            chunk_for(T, chunk),
        )
        if valid_BT is not None:
            o_BTHV = o_BTHV.masked_fill(~valid_BT[:, :, None, None], 0.0)
    return o_BTHV, state_BHKV


def ssd_recurrent(
    q_BTQK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    *,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The recurrence token by token: the reference of `ssd`, with its arguments and results."""
    _check(q_BTQK, k_BTGK, v_BTHV, log_decay_BTH, state_BHKV)
    B, T, H, V = v_BTHV.shape
    dtype = compute_dtype(v_BTHV)
    if state_BHKV is None:
        state_BHKV = v_BTHV.new_zeros(B, H, k_BTGK.shape[3], V, dtype=dtype)
    state_BHKV, outputs = state_BHKV.to(dtype), []
    reset_BT = silence(valid_BT, reset_BT)
    for t in range(T):
        o_BHV, state_BHKV = ssd_step(
            q_BTQK[:, t],
            k_BTGK[:, t],
            v_BTHV[:, t],
            log_decay_BTH[:, t],
            state_BHKV,
            valid_B=None if valid_BT is None else valid_BT[:, t],
            reset_B=None if reset_BT is None else reset_BT[:, t],
        )
        outputs.append(o_BHV)
    return torch.stack(outputs, 1), state_BHKV


def ssd_step(
    q_BQK: Tensor,
    k_BGK: Tensor,
    v_BHV: Tensor,
    log_decay_BH: Tensor,
    state_BHKV: Tensor,
    *,
    valid_B: Tensor | None = None,
    reset_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One token of `ssd`: `(o_BHV, state_BHKV)`; the state keeps its dtype."""
    B, H, K, V = state_BHKV.shape
    dtype = state_BHKV.dtype
    Q, G = q_BQK.shape[1], k_BGK.shape[1]
    old_BHKV = state_BHKV if reset_B is None else state_BHKV.masked_fill(reset_B[:, None, None, None], 0.0)
    k_BGrK1 = k_BGK.to(dtype)[:, :, None, :, None]
    write_BHKV = (k_BGrK1 * v_BHV.to(dtype).view(B, G, H // G, 1, V)).view(B, H, K, V)
    new_BHKV = torch.addcmul(write_BHKV, old_BHKV, log_decay_BH.to(dtype).exp()[..., None, None])
    # Multiply and sum rather than a product: autocast leaves it in the state's dtype.
    q_BQrK1 = q_BQK.to(dtype)[:, :, None, :, None]
    o_BHV = (q_BQrK1 * new_BHKV.view(B, Q, H // Q, K, V)).sum(-2).view(B, H, V).to(v_BHV.dtype)
    if valid_B is not None:
        new_BHKV = torch.where(valid_B[:, None, None, None], new_BHKV, state_BHKV)
        o_BHV = o_BHV.masked_fill(~valid_B[:, None, None], 0.0)
    return o_BHV, new_BHKV


class _SSD(torch.autograd.Function):
    """The chunk form for queries and keys with one head count R, with its backward pass written out.

    Layouts: `(N, B*R, C, r*V)` "side by side", the r heads of a group as columns, for products with the state;
    `(N, B*R, r, C, V)` "apart" for products with the decayed scores of each head.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_BTRK: Tensor,
        k_BTRK: Tensor,
        v_BTHV: Tensor,
        log_decay_BTH: Tensor,
        state_BHKV: Tensor,
        reset_BT: Tensor | None,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        B, T, H, V = v_BTHV.shape
        R, K = k_BTRK.shape[2:]
        r, C, dtype = H // R, chunk, compute_dtype(v_BTHV)
        decays = chunk_decays(log_decay_BTH, reset_BT, C, dtype)
        q, k = to_chunks(q_BTRK, C, dtype), to_chunks(k_BTRK, C, dtype)
        v = to_chunks(v_BTHV.reshape(B, T, R, r * V), C, dtype)
        N, M = k.shape[:2]
        pair = decays.pair_NMCC.view(N, M, r, C, C)
        head, tail = (x.view(N, M, r, C).mT.unsqueeze(-1) for x in (decays.head_NMC, decays.tail_NMC))
        whole = decays.whole_NM.view(N, M, 1, r, 1)
        scores = (q @ k.mT.contiguous()).unsqueeze(2) * pair
        apart = v.view(N, M, C, r, V).transpose(2, 3).contiguous()
        inside = scores @ apart
        write = k.mT @ (v.view(N, M, C, r, V) * tail).view(N, M, C, r * V)
        states = torch.empty(N + 1, M, K, r * V, dtype=dtype, device=k.device)
        states[0] = _side_by_side(state_BHKV, M)
        for n in range(N):
            _decay_and_add(whole[n], states[n], write[n], out=states[n + 1])
        old = (q @ states[:-1]).view(N, M, C, r, V).mul_(head)
        o = old + inside.transpose(2, 3)
        ctx.save_for_backward(q, k, v, apart, pair, head, tail, whole, scores, states, old)
        ctx.sizes = (B, T, H)
        ctx.dtypes = [x.dtype for x in (q_BTRK, k_BTRK, v_BTHV, log_decay_BTH, state_BHKV)]
        o_BTHV = from_chunks(o.view(N, M, C, r * V), B, T).view(B, T, H, V)
        return o_BTHV.to(v_BTHV.dtype), _heads_apart(states[-1], B, H, V)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_o_BTHV: Tensor, grad_state_BHKV: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grad_o_BTHV.device.type, enabled=False):
            return _SSD._backward(ctx, grad_o_BTHV, grad_state_BHKV)

    @staticmethod
    def _backward(ctx: Any, grad_o_BTHV: Tensor, grad_state_BHKV: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, apart, pair, head, tail, whole, scores, states, old = ctx.saved_tensors
        B, T, H = ctx.sizes
        N, M, C, r, V = old.shape
        dtype = q.dtype
        grad_o = to_chunks(grad_o_BTHV.reshape(B, T, M // B, r * V), C, dtype).view(N, M, C, r, V)
        grad_apart = grad_o.transpose(2, 3).contiguous()
        old_reads = (grad_o * head).view(N, M, C, r * V)
        local = q.mT @ old_reads
        grad_states = torch.empty_like(states)
        grad_states[N] = _side_by_side(grad_state_BHKV.to(dtype), M)
        for n in reversed(range(N)):
            _decay_and_add(whole[n], grad_states[n + 1], local[n], out=grad_states[n])
        after = grad_states[1:]
        grad_tail = (k @ after).view(N, M, C, r, V).mul_(tail)
        grad_pair = grad_apart @ apart.mT.contiguous()
        log_pair = (grad_pair * scores).view(N, M * r, C, C)
        grad_raw = grad_pair.mul_(pair).sum(2)
        grad_q = (grad_raw @ k).add_(old_reads @ states[:-1].mT.contiguous())
        written = (v.view(N, M, C, r, V) * tail).view(N, M, C, r * V)
        grad_k = (grad_raw.mT @ q).add_(written @ after.mT.contiguous())
        log_head, log_tail = (
            (x * y).sum(-1).mT.reshape(N, M * r, C) for x, y in ((grad_o, old), (grad_tail, v.view_as(old)))
        )
        log_whole = (whole * (after * states[:-1]).view(N, M, -1, r, V)).sum((2, 4)).view(N, M * r)
        grad_log = log_decay_gradient(log_pair, log_head, log_tail, log_whole)
        grad_v = grad_tail.add_((scores.mT @ grad_apart).transpose(2, 3))
        grads = [
            from_chunks(grad_q, B, T),
            from_chunks(grad_k, B, T),
            from_chunks(grad_v.view(N, M, C, r * V), B, T).view(B, T, H, V),
            from_chunks(grad_log.unsqueeze(-1), B, T).squeeze(-1),
            _heads_apart(grad_states[0], B, H, V),
        ]
        return *(g.to(d) for g, d in zip(grads, ctx.dtypes, strict=True)), None, None


def _decay_and_add(whole_M1r1: Tensor, state: Tensor, add: Tensor, out: Tensor) -> None:
    """`out = whole * state + add` on side-by-side states `(M, K, r*V)`."""
    M, K, rV = state.shape
    shape = (M, K, whole_M1r1.shape[2], rV // whole_M1r1.shape[2])
    torch.addcmul(add.view(shape), state.view(shape), whole_M1r1, out=out.view(shape))


def _side_by_side(state_BHKV: Tensor, groups: int) -> Tensor:
    """`(B, H, K, V)` to `(B*R, K, r*V)`, with `groups` = B*R."""
    B, H, K, V = state_BHKV.shape
    return state_BHKV.reshape(groups, B * H // groups, K, V).transpose(1, 2).reshape(groups, K, -1)


def _heads_apart(state: Tensor, batch: int, heads: int, values: int) -> Tensor:
    """The inverse of `_side_by_side`, as a tensor of its own."""
    M, K, _ = state.shape
    apart = state.view(M, K, batch * heads // M, values).transpose(1, 2)
    return apart.clone(memory_format=torch.contiguous_format).view(batch, heads, K, values)


def _check(
    q_BTQK: Tensor, k_BTGK: Tensor, v_BTHV: Tensor, log_decay_BTH: Tensor, state_BHKV: Tensor | None
) -> None:
    B, T, H, V = v_BTHV.shape
    K = k_BTGK.shape[-1]
    for name, tensor in (("q", q_BTQK), ("k", k_BTGK)):
        heads = tensor.shape[2]
        if tuple(tensor.shape) != (B, T, heads, K) or H % heads:
            raise ConfigError(
                f"{name} has shape {tuple(tensor.shape)}; values {(B, T, H, V)} need ({B}, {T}, a divisor of {H}, {K})."
            )
    wanted: dict[str, tuple[Tensor, tuple[int, ...]]] = {"log_decay": (log_decay_BTH, (B, T, H))}
    if state_BHKV is not None:
        wanted["state"] = (state_BHKV, (B, H, K, V))
    for name, (tensor, shape) in wanted.items():
        if tuple(tensor.shape) != shape:
            raise ConfigError(f"{name} has shape {tuple(tensor.shape)}; values {(B, T, H, V)} need {shape}.")
