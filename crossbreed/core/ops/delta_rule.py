"""The gated delta rule (Yang et al., Gated Delta Networks, 2024, eq. 10), as a scan over chunks.

With a_t = exp(log_decay_t) and the write key w_t = beta_t k_t, the rule of one head is

    y_t = v_t - a_t k_t S_{t-1},   S_t = a_t S_{t-1} + w_t^T y_t,   o_t = scale q_t S_t.

Inside a chunk, with D_ij the decay from after j to i, d_i the decay from the chunk's start to i and e_j the decay
from after j to its end (the paper's UT transform, section 3.3, with beta in the write key):

    T = (I + tril(D * k w^T, -1))^-1,   Y = T v - T (d k) S,   O = d q S + (D * q w^T) Y,
    S' = (d_C I - (e w)^T T (d k)) S + (e w)^T T v.

S' is affine in S, so only one small product a chunk is sequential; the backward pass has the same form.
"""

from __future__ import annotations

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


def gated_delta_rule(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTH: Tensor,
    *,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
    chunk: int = 32,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Gated delta rule: S_t = a_t (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t, o_t = scale q_t S_t.

    Args:
        q_BTHK, k_BTHK: queries and keys, normalised by the caller (`l2_norm`).
        v_BTHV: values.
        log_decay_BTH: log of a_t, at most 0; any finite value is safe.
        beta_BTH: write strengths.
        state_BHKV: state before the first token; zeros when None.
        valid_BT, reset_BT: see the package's docstring.
        chunk: a power of two of at least 16. It changes speed, not results: 32 is fastest on a CPU.
        scale: of the queries; 1/sqrt(K) when None.

    Returns:
        `o_BTHV` in the dtype of `v_BTHV`, and the state after the last token, fp32 (float64 for float64 values).

    Raises:
        ConfigError: shapes that do not fit, or a bad chunk.
    """
    _check(q_BTHK, k_BTHK, v_BTHV, log_decay_BTH, beta_BTH, state_BHKV)
    check_chunk(chunk)
    B, T, H, K = k_BTHK.shape
    dtype = compute_dtype(v_BTHV)
    scale = K**-0.5 if scale is None else scale
    with torch.autocast(v_BTHV.device.type, enabled=False):
        if T == 1:
            return gated_delta_rule_recurrent(
                q_BTHK,
                k_BTHK,
                v_BTHV,
                log_decay_BTH,
                beta_BTH,
                state_BHKV=state_BHKV,
                valid_BT=valid_BT,
                reset_BT=reset_BT,
                scale=scale,
            )
        if state_BHKV is None:
            state_BHKV = v_BTHV.new_zeros(B, H, K, v_BTHV.shape[-1], dtype=dtype)
        if valid_BT is not None:
            log_decay_BTH = log_decay_BTH.masked_fill(~valid_BT.unsqueeze(-1), 0.0)
            beta_BTH = beta_BTH.masked_fill(~valid_BT.unsqueeze(-1), 0.0)
        o_BTHV, state_BHKV = _GatedDeltaRule.apply(
            q_BTHK,
            k_BTHK,
            v_BTHV,
            log_decay_BTH,
            beta_BTH,
            state_BHKV,
            silence(valid_BT, reset_BT),
            chunk_for(T, chunk),
            scale,
        )
        if valid_BT is not None:
            o_BTHV = o_BTHV.masked_fill(~valid_BT[:, :, None, None], 0.0)
    return o_BTHV, state_BHKV


def gated_delta_rule_recurrent(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTH: Tensor,
    *,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The rule token by token: the reference of `gated_delta_rule`, with its arguments and results."""
    _check(q_BTHK, k_BTHK, v_BTHV, log_decay_BTH, beta_BTH, state_BHKV)
    B, T, H, K = k_BTHK.shape
    dtype = compute_dtype(v_BTHV)
    scale = K**-0.5 if scale is None else scale
    if state_BHKV is None:
        state_BHKV = v_BTHV.new_zeros(B, H, K, v_BTHV.shape[-1], dtype=dtype)
    state_BHKV, outputs = state_BHKV.to(dtype), []
    reset_BT = silence(valid_BT, reset_BT)
    for t in range(T):
        o_BHV, state_BHKV = _step(
            q_BTHK[:, t],
            k_BTHK[:, t],
            v_BTHV[:, t],
            log_decay_BTH[:, t],
            beta_BTH[:, t],
            state_BHKV,
            None if valid_BT is None else valid_BT[:, t],
            None if reset_BT is None else reset_BT[:, t],
            scale,
        )
        outputs.append(o_BHV)
    return torch.stack(outputs, 1), state_BHKV


def _step(
    q_BHK: Tensor,
    k_BHK: Tensor,
    v_BHV: Tensor,
    log_decay_BH: Tensor,
    beta_BH: Tensor,
    state_BHKV: Tensor,
    valid_B: Tensor | None,
    reset_B: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    dtype = state_BHKV.dtype
    q_BH1K = q_BHK.to(dtype).unsqueeze(-2) * scale
    k_BH1K = k_BHK.to(dtype).unsqueeze(-2)
    old_BHKV = state_BHKV if reset_B is None else state_BHKV.masked_fill(reset_B[:, None, None, None], 0.0)
    decayed_BHKV = old_BHKV * log_decay_BH.to(dtype).exp()[..., None, None]
    y_BH1V = v_BHV.to(dtype).unsqueeze(-2) - k_BH1K @ decayed_BHKV
    new_BHKV = decayed_BHKV + (beta_BH.to(dtype)[..., None, None] * k_BH1K).mT @ y_BH1V
    o_BHV = (q_BH1K @ new_BHKV).squeeze(-2).to(v_BHV.dtype)
    if valid_B is not None:
        new_BHKV = torch.where(valid_B[:, None, None, None], new_BHKV, state_BHKV)
        o_BHV = o_BHV.masked_fill(~valid_B[:, None, None], 0.0)
    return o_BHV, new_BHKV


class _GatedDeltaRule(torch.autograd.Function):
    """The chunk form of the module's docstring with its backward pass written out: autograd would keep, and add up,
    three times as many chunk-square tensors. `qk` stacks queries over keys, so that what both need is one product.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_BTHK: Tensor,
        k_BTHK: Tensor,
        v_BTHV: Tensor,
        log_decay_BTH: Tensor,
        beta_BTH: Tensor,
        state_BHKV: Tensor,
        reset_BT: Tensor | None,
        chunk: int,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        B, T, H, K = k_BTHK.shape
        V, C = v_BTHV.shape[-1], chunk
        dtype = compute_dtype(v_BTHV)
        decays = chunk_decays(log_decay_BTH, reset_BT, C, dtype)
        q = to_chunks(q_BTHK, C, dtype) * scale
        k = to_chunks(k_BTHK, C, dtype)
        v = to_chunks(v_BTHV, C, dtype)
        beta = to_chunks(beta_BTH.unsqueeze(-1), C, dtype)
        N, M = k.shape[:2]
        head, tail = decays.head_NMC.unsqueeze(-1), decays.tail_NMC.unsqueeze(-1)
        qk, w = torch.cat((q, k), 2), beta * k
        scores = (qk @ w.mT).view(N, M, 2, C, C).mul_(decays.pair_NMCC.unsqueeze(2))
        read, system = scores.unbind(2)
        eye_CC = torch.eye(C, dtype=dtype, device=k.device).expand(N, M, C, C)
        solve = torch.linalg.solve_triangular(system, eye_CC, upper=False, unitriangular=True)
        solved = solve @ torch.cat((head * k, v), -1)
        old_reads, values = solved[..., :K], solved[..., K:]
        step = (tail * w).mT @ solved
        carry = step[..., :K].neg()
        carry.diagonal(dim1=-2, dim2=-1).add_(decays.whole_NM.unsqueeze(-1))
        states = torch.empty(N + 1, M, K, V, dtype=dtype, device=k.device)
        states[0] = state_BHKV.reshape(M, K, V)
        for n in range(N):
            torch.baddbmm(step[n, :, :, K:], carry[n], states[n], out=states[n + 1])
        before = states[:-1]
        y = values - old_reads @ before
        o = (q @ before).mul_(head).add_(read @ y)
        ctx.save_for_backward(
            qk, w, beta, decays.pair_NMCC, head, tail, scores, solve, solved, carry, states, y
        )
        ctx.sizes, ctx.scale = (B, T), scale
        ctx.dtypes = [x.dtype for x in (q_BTHK, k_BTHK, v_BTHV, log_decay_BTH, beta_BTH, state_BHKV)]
        return from_chunks(o, B, T).to(v_BTHV.dtype), states[-1].reshape(B, H, K, V).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_o_BTHV: Tensor, grad_state_BHKV: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast(grad_o_BTHV.device.type, enabled=False):
            return _GatedDeltaRule._backward(ctx, grad_o_BTHV, grad_state_BHKV)

    @staticmethod
    def _backward(ctx: Any, grad_o_BTHV: Tensor, grad_state_BHKV: Tensor) -> tuple[Tensor | None, ...]:
        qk, w, beta, pair, head, tail, scores, solve, solved, carry, states, y = ctx.saved_tensors
        B, T = ctx.sizes
        N, M, C, K = w.shape
        V, H, dtype = y.shape[-1], M // B, w.dtype
        before = states[:-1]
        grad_o = to_chunks(grad_o_BTHV, C, dtype)
        grad_y = scores[:, :, 0].mT @ grad_o
        # Gradient of the state before each chunk: a scan from the end, with the carries transposed.
        local = (head * qk[:, :, :C]).mT @ grad_o - solved[..., :K].mT @ grad_y
        grad_states = torch.empty_like(states)
        grad_states[N] = grad_state_BHKV.reshape(M, K, V)
        for n in reversed(range(N)):
            torch.baddbmm(local[n], carry[n].mT, grad_states[n + 1], out=grad_states[n])
        after = grad_states[1:]
        grad_y.add_((tail * w) @ after)
        grad_v = solve.mT @ grad_y
        # Rows of queries get grad_o, rows of keys get -grad_v: both read y through `scores` and the old state.
        rows = torch.cat((grad_o, -grad_v), 2)
        grad_scores = (rows @ y.mT).view(N, M, 2, C, C)
        grad_scores[:, :, 1].diagonal(dim1=-2, dim2=-1).zero_()  # a key reads no value of its own token
        log_pair = (grad_scores * scores).sum(2)
        log_pair.diagonal(dim1=-2, dim2=-1).zero_()
        grad_scores = grad_scores.mul_(pair.unsqueeze(2)).view(N, M, 2 * C, C)
        grad_qk = (rows @ before.mT).mul_(torch.cat((head, head), 2))
        grad_w = (y @ after.mT).mul_(tail)
        reads = log_pair.sum(-1) + (grad_qk * qk).sum(-1).view(N, M, 2, C).sum(2)
        log_tail = (grad_w * w).sum(-1)
        log_whole = (after * before).sum((-2, -1)).mul_(head[:, :, -1, 0])
        grad_log = log_decay_gradient(reads, log_pair.sum(-2), log_tail, log_whole)
        grad_qk.add_(grad_scores @ w)
        grad_w.add_(grad_scores.mT @ qk)
        grad_q, grad_k = grad_qk[:, :, :C].mul(ctx.scale), grad_qk[:, :, C:].add(beta * grad_w)
        grad_beta = (grad_w * qk[:, :, C:]).sum(-1, keepdim=True)
        grads = [from_chunks(g, B, T) for g in (grad_q, grad_k, grad_v)]
        grads += [from_chunks(g, B, T).squeeze(-1) for g in (grad_log.unsqueeze(-1), grad_beta)]
        grads.append(grad_states[0].reshape(B, H, K, V))
        return *(g.to(d) for g, d in zip(grads, ctx.dtypes, strict=True)), None, None, None


def _check(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTH: Tensor,
    state_BHKV: Tensor | None,
) -> None:
    B, T, H, K = k_BTHK.shape
    wanted: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "q": (q_BTHK, (B, T, H, K)),
        "v": (v_BTHV, (B, T, H, v_BTHV.shape[-1])),
        "log_decay": (log_decay_BTH, (B, T, H)),
        "beta": (beta_BTH, (B, T, H)),
    }
    if state_BHKV is not None:
        wanted["state"] = (state_BHKV, (B, H, K, v_BTHV.shape[-1]))
    for name, (tensor, shape) in wanted.items():
        if tuple(tensor.shape) != shape:
            raise ConfigError(f"{name} has shape {tuple(tensor.shape)}; keys {(B, T, H, K)} need {shape}.")
