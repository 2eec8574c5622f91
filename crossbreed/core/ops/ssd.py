"""State-space duality (Dao and Gu, Transformers are SSMs, 2024, section 6): a scalar-decay recurrence in chunks.

    S_t = exp(log_decay_t) S_{t-1} + step_t k_t^T v_t,   o_t = q_t S_t + skip v_t.

Inside a chunk, with D_ij the decay from after j to i, d_i the decay from the chunk's start to i and e_j the decay
from after j to its end, and s the steps as a row:

    O = (D * s * q k^T + skip I) v + d q S,   S' = d_C S + (e s k)^T v.

Heads that share queries and keys share their products.
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
    chunk_view,
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
    step_BTH: Tensor | None = None,
    skip_H: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
    chunk: int = 32,
) -> tuple[Tensor, Tensor]:
    """S_t = exp(log_decay_t) S_{t-1} + step_t k_t^T v_t, o_t = q_t S_t + skip v_t.

    Mamba-2 in these terms: q is C, k is B, v is x, step is dt, log_decay is dt * A and skip is D.

    Args:
        q_BTQK, k_BTGK: queries and keys; their head counts Q and G each divide H, consecutive heads share.
        v_BTHV: values.
        log_decay_BTH: log-decays, at most 0; any finite value is safe.
        step_BTH: strength of each write; 1 when None. Cheaper here than multiplied into the values.
        skip_H: how much of its own value a token reads beside the state; nothing when None.
        state_BHKV: state before the first token; zeros when None.
        valid_BT, reset_BT: see the package's docstring.
        chunk: a power of two of at least 16. It changes speed, not results: 32 is fastest on a CPU.

    Returns:
        `o_BTHV` in the dtype of `v_BTHV`, and the state after the last token, fp32 (float64 for float64 values).

    Raises:
        ConfigError: shapes that do not fit, or a bad chunk.
    """
    _check(q_BTQK, k_BTGK, v_BTHV, log_decay_BTH, step_BTH, skip_H, state_BHKV)
    check_chunk(chunk)
    B, T, H, V = v_BTHV.shape
    Q, G, K = q_BTQK.shape[2], k_BTGK.shape[2], k_BTGK.shape[3]
    dtype = compute_dtype(v_BTHV)
    if T == 1:
        return ssd_recurrent(
            q_BTQK,
            k_BTGK,
            v_BTHV,
            log_decay_BTH,
            step_BTH=step_BTH,
            skip_H=skip_H,
            state_BHKV=state_BHKV,
            valid_BT=valid_BT,
            reset_BT=reset_BT,
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
            step_BTH,
            skip_H,
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
    step_BTH: Tensor | None = None,
    skip_H: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The recurrence token by token: the reference of `ssd`, with its arguments and results."""
    _check(q_BTQK, k_BTGK, v_BTHV, log_decay_BTH, step_BTH, skip_H, state_BHKV)
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
            step_BH=None if step_BTH is None else step_BTH[:, t],
            skip_H=skip_H,
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
    step_BH: Tensor | None = None,
    skip_H: Tensor | None = None,
    valid_B: Tensor | None = None,
    reset_B: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One token of `ssd`: `(o_BHV, state_BHKV)`; the state keeps its dtype."""
    B, H, K, V = state_BHKV.shape
    dtype = state_BHKV.dtype
    Q, G = q_BQK.shape[1], k_BGK.shape[1]
    old_BHKV = state_BHKV if reset_B is None else state_BHKV.masked_fill(reset_B[:, None, None, None], 0.0)
    wide_BHV = v_BHV.to(dtype)
    new_BHV = wide_BHV if step_BH is None else wide_BHV * step_BH.to(dtype).unsqueeze(-1)
    k_BGrK1 = k_BGK.to(dtype)[:, :, None, :, None]
    write_BHKV = (k_BGrK1 * new_BHV.view(B, G, H // G, 1, V)).view(B, H, K, V)
    new_BHKV = torch.addcmul(write_BHKV, old_BHKV, log_decay_BH.to(dtype).exp()[..., None, None])
    # Multiply and sum rather than a product: autocast leaves it in the state's dtype.
    q_BQrK1 = q_BQK.to(dtype)[:, :, None, :, None]
    o_BHV = (q_BQrK1 * new_BHKV.view(B, Q, H // Q, K, V)).sum(-2).view(B, H, V)
    if skip_H is not None:
        o_BHV = torch.addcmul(o_BHV, wide_BHV, skip_H.to(dtype).unsqueeze(-1))
    o_BHV = o_BHV.to(v_BHV.dtype)
    if valid_B is not None:
        new_BHKV = torch.where(valid_B[:, None, None, None], new_BHKV, state_BHKV)
        o_BHV = o_BHV.masked_fill(~valid_B[:, None, None], 0.0)
    return o_BHV, new_BHKV


class _SSD(torch.autograd.Function):
    """The chunk form for queries and keys with one head count R, with its backward pass written out.

    Chunked tensors are `(N, M, r, ...)`: M = B*R groups of r heads; queries and keys have r = 1. What a position
    reads is one product `reader @ source`: the reader `(C, C+K)` holds its decayed scores beside its decayed query,
    the source `(C+K, V)` the values of the chunk above the state before it. The step scales columns of the scores
    and the skip is added to their diagonal, so neither touches the values.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_BTRK: Tensor,
        k_BTRK: Tensor,
        v_BTHV: Tensor,
        log_decay_BTH: Tensor,
        step_BTH: Tensor | None,
        skip_H: Tensor | None,
        state_BHKV: Tensor,
        reset_BT: Tensor | None,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        B, T, H, V = v_BTHV.shape
        R, K = k_BTRK.shape[2:]
        M, r, C, dtype = B * R, H // R, chunk, compute_dtype(v_BTHV)
        decays = chunk_decays(log_decay_BTH, reset_BT, C, dtype)
        q, k = (to_chunks(x, C, dtype).unsqueeze(2) for x in (q_BTRK, k_BTRK))
        N = k.shape[0]
        pair = decays.pair_NMCC.view(N, M, r, C, C)
        head, tail = (x.view(N, M, r, C, 1) for x in (decays.head_NMC, decays.tail_NMC))
        whole = decays.whole_NM.view(N, M, r, 1, 1)
        source = torch.empty(N + 1, M, r, C + K, V, dtype=dtype, device=k.device)
        v, states = source[:N, ..., :C, :], source[..., C:, :]
        v.view(N, B, H, C, V).copy_(chunk_view(v_BTHV, C))
        reader = torch.empty(N, M, r, C, C + K, dtype=dtype, device=k.device)
        raw = q @ k.mT
        torch.mul(raw, pair, out=reader[..., :C])
        torch.mul(q, head, out=reader[..., C:])
        step = None
        if step_BTH is not None:
            step = to_chunks(step_BTH.unsqueeze(-1), C, dtype).view(N, M, r, C, 1)
            reader[..., :C].mul_(step.mT)
        if skip_H is not None:
            skip = skip_H.to(dtype).expand(B, H).reshape(M, r, 1)
            reader[..., :C].diagonal(dim1=-2, dim2=-1).add_(skip)
        new_k = k * (tail if step is None else tail * step)
        write = new_k.mT @ v
        states[0] = state_BHKV.reshape(M, r, K, V)
        for n in range(N):
            torch.addcmul(write[n], states[n], whole[n], out=states[n + 1])
        o = reader @ source[:N]
        ctx.save_for_backward(q, k, raw, pair, head, tail, whole, step, reader, new_k, source)
        ctx.sizes, ctx.skips = (B, T, H), skip_H is not None
        inputs = (q_BTRK, k_BTRK, v_BTHV, log_decay_BTH, step_BTH, skip_H, state_BHKV)
        ctx.dtypes = [None if x is None else x.dtype for x in inputs]
        o_BTHV = from_chunks(o.view(N, B * H, C, V), B, T)
        # A copy: a view would keep every chunk alive for as long as the state lives.
        last_BHKV = states[-1].view(B, H, K, V).clone(memory_format=torch.contiguous_format)
        return o_BTHV.to(v_BTHV.dtype), last_BHKV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_o_BTHV: Tensor, grad_state_BHKV: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grad_o_BTHV.device.type, enabled=False):
            grads = _SSD._backward(ctx, grad_o_BTHV, grad_state_BHKV)
        cast = (None if g is None else g.to(d) for g, d in zip(grads, ctx.dtypes, strict=True))
        return *cast, None, None

    @staticmethod
    def _backward(ctx: Any, grad_o_BTHV: Tensor, grad_state_BHKV: Tensor) -> tuple[Tensor | None, ...]:
        q, k, raw, pair, head, tail, whole, step, reader, new_k, source = ctx.saved_tensors
        B, T, H = ctx.sizes
        N, M, r, C, _ = pair.shape
        K, V = q.shape[-1], source.shape[-1]
        v, before = source[:N, ..., :C, :], source[:N, ..., C:, :]
        grad_o = to_chunks(grad_o_BTHV, C, pair.dtype).view(N, M, r, C, V)
        grad_source = reader.mT @ grad_o
        grad_states = torch.empty(N + 1, M, r, K, V, dtype=pair.dtype, device=pair.device)
        grad_states[N] = grad_state_BHKV.reshape(M, r, K, V)
        for n in reversed(range(N)):
            torch.addcmul(grad_source[n, ..., C:, :], grad_states[n + 1], whole[n], out=grad_states[n])
        after = grad_states[1:]
        grad_v = (new_k @ after).add_(grad_source[..., :C, :])
        grad_reader = grad_o @ source[:N].mT
        grad_scores, grad_old_q = grad_reader[..., :C], grad_reader[..., C:]
        grad_skip = None
        if ctx.skips:
            diagonal = grad_scores.diagonal(dim1=-2, dim2=-1)
            grad_skip = diagonal.sum((0, 3)).view(B, H).sum(0)
        log_head = (grad_old_q * reader[..., C:]).sum(-1)
        grad_old_q.mul_(head)
        grad_scores.mul_(pair)
        log_pair = grad_scores * raw
        own = log_pair.diagonal(dim1=-2, dim2=-1).clone()
        log_pair.diagonal(dim1=-2, dim2=-1).zero_()
        writes = log_pair.sum(-2)
        grad_new_k = v @ after.mT
        log_tail = (grad_new_k * k).sum(-1).mul_(tail.squeeze(-1))
        grad_new_k.mul_(tail)
        if step is None:
            grad_step, reads = None, log_pair.sum(-1)
        else:
            # Without the step so far: what is left of the gradient of a column is the gradient of its step.
            grad_step = from_chunks((own + writes + log_tail).view(N, M * r, C, 1), B, T).squeeze(-1)
            reads = (log_pair @ step).squeeze(-1)
            writes, log_tail = writes * step.squeeze(-1), log_tail * step.squeeze(-1)
            grad_scores.mul_(step.mT)
            grad_new_k.mul_(step)
        log_whole = (after * before).sum((-2, -1)) * whole[..., 0, 0]
        reads, writes, log_tail = (x.view(N, M * r, C) for x in (reads + log_head, writes, log_tail))
        grad_log = log_decay_gradient(reads, writes, log_tail, log_whole.view(N, M * r))
        grad_reader = grad_reader.sum(2)
        grad_raw = grad_reader[..., :C]
        return (
            from_chunks(grad_reader[..., C:] + grad_raw @ k.squeeze(2), B, T),
            from_chunks(grad_new_k.sum(2).add_(grad_raw.mT @ q.squeeze(2)), B, T),
            from_chunks(grad_v.view(N, B * H, C, V), B, T),
            from_chunks(grad_log.unsqueeze(-1), B, T).squeeze(-1),
            grad_step,
            grad_skip,
            grad_states[0].reshape(B, H, K, V),
        )


def _check(
    q_BTQK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    step_BTH: Tensor | None,
    skip_H: Tensor | None,
    state_BHKV: Tensor | None,
) -> None:
    B, T, H, V = v_BTHV.shape
    K = k_BTGK.shape[-1]
    for name, heads_tensor in (("q", q_BTQK), ("k", k_BTGK)):
        heads = heads_tensor.shape[2]
        if tuple(heads_tensor.shape) != (B, T, heads, K) or H % heads:
            raise ConfigError(
                f"{name} has shape {tuple(heads_tensor.shape)}; values {(B, T, H, V)} need "
                f"({B}, {T}, a divisor of {H}, {K})."
            )
    wanted: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
        "log_decay": (log_decay_BTH, (B, T, H)),
        "step": (step_BTH, (B, T, H)),
        "skip": (skip_H, (H,)),
        "state": (state_BHKV, (B, H, K, V)),
    }
    for name, (tensor, shape) in wanted.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ConfigError(f"{name} has shape {tuple(tensor.shape)}; values {(B, T, H, V)} need {shape}.")
