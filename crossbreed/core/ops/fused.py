"""Recurrences by the fused kernels of other libraries, with the arguments and results of `delta_rule` and `ssd`.

A library is imported when its kernel is called, never before. All of them want a CUDA device and values of 16 bits. They
know no documents inside a row (or not all do), so the start of one is a decay of exp(-80): of what came before, fp32 keeps
nothing, and the sums of log-decays inside a chunk keep five digits.
"""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from torch import Tensor

# These kernels try dozens of settings at their first call, for minutes; what is found then serves other processes, too.
os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")

FORGET = -80.0
"""Log-decay at a document's start."""
FLA_SIZES = (64, 128, 256)
"""Sizes of keys and values that are given to fla's kernels, whose backward pass reads memory that is not theirs at 32; others
are filled up with zeros, which change nothing."""


def delta_rule_fla(
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    beta_BTH: Tensor,
    *,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
    scale: float | None = None,
    normalise: bool = False,
) -> tuple[Tensor, Tensor]:
    """`gated_delta_rule` by flash-linear-attention's chunked kernel.

    Consecutive heads of the values may share a head of queries and keys. `normalise`: the kernel brings queries and keys to
    unit length.
    """
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    K, V = q_BTGK.shape[-1], v_BTHV.shape[-1]
    log_decay_BTH = _forgetting(log_decay_BTH, valid_BT, reset_BT)
    beta_BTH = _silent(beta_BTH, valid_BT)
    with torch.autocast(v_BTHV.device.type, enabled=False):
        o_BTHV, state_BHKV = chunk_gated_delta_rule(
            _filled(q_BTGK),
            _filled(k_BTGK),
            _filled(v_BTHV),
            log_decay_BTH.float().contiguous(),
            beta_BTH.float().contiguous(),
            scale=K**-0.5 if scale is None else scale,
            initial_state=_filled_state(state_BHKV),
            output_final_state=True,
            use_qk_l2norm_in_kernel=normalise,
        )
    return _silent(o_BTHV[..., :V], valid_BT), state_BHKV[..., :K, :V].contiguous()


def ssd_fla(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    log_decay_BTH: Tensor,
    *,
    step_BTH: Tensor,
    skip_H: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`ssd` by flash-linear-attention's gated linear attention with one decay a head. Every head has its own q and k."""
    from fla.ops.simple_gla import chunk_simple_gla

    K, V = q_BTHK.shape[-1], v_BTHV.shape[-1]
    log_decay_BTH = _forgetting(log_decay_BTH, valid_BT, reset_BT)
    written_BTHV = (v_BTHV * _silent(step_BTH, valid_BT).unsqueeze(-1)).to(v_BTHV.dtype)
    with torch.autocast(v_BTHV.device.type, enabled=False):
        o_BTHV, state_BHKV = chunk_simple_gla(
            _filled(q_BTHK),
            _filled(k_BTHK),
            _filled(written_BTHV),
            log_decay_BTH.float().contiguous(),
            scale=1.0,
            initial_state=_filled_state(state_BHKV),
            output_final_state=True,
        )
        o_BTHV = o_BTHV[..., :V]
        if skip_H is not None:
            o_BTHV = torch.addcmul(o_BTHV, v_BTHV, skip_H.to(v_BTHV.dtype)[:, None])
    return _silent(o_BTHV, valid_BT), state_BHKV[..., :K, :V].contiguous()


def ssd_mamba(
    q_BTGK: Tensor,
    k_BTGK: Tensor,
    v_BTHV: Tensor,
    rate_H: Tensor,
    *,
    step_BTH: Tensor,
    skip_H: Tensor | None = None,
    state_BHKV: Tensor | None = None,
    valid_BT: Tensor | None = None,
    reset_BT: Tensor | None = None,
    chunk: int = 256,
) -> tuple[Tensor, Tensor]:
    """`ssd` by mamba-ssm's chunked scan: log-decays are step x rate (A, negative), and heads of a group share q and k."""
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    # What is carried in belongs to document 0.
    document_BT = None if reset_BT is None else reset_BT.cumsum(1, dtype=torch.int32)
    with torch.autocast(v_BTHV.device.type, enabled=False):
        o_BTHV, state_BHVK = mamba_chunk_scan_combined(
            v_BTHV.contiguous(),
            _silent(step_BTH, valid_BT).float().contiguous(),
            rate_H.float(),
            k_BTGK.contiguous(),
            q_BTGK.contiguous(),
            chunk,
            D=None if skip_H is None else skip_H.float(),
            initial_states=None if state_BHKV is None else state_BHKV.float().mT.contiguous(),
            seq_idx=document_BT,
            return_final_states=True,
        )
    return _silent(o_BTHV, valid_BT), state_BHVK.float().mT.contiguous()


def _forgetting(log_decay_BTH: Tensor, valid_BT: Tensor | None, reset_BT: Tensor | None) -> Tensor:
    """Log-decays that keep the state over invalid tokens and drop it at a document's start."""
    if reset_BT is not None:
        log_decay_BTH = log_decay_BTH.masked_fill(reset_BT.unsqueeze(-1), FORGET)
    return _silent(log_decay_BTH, valid_BT)


def _silent(x: Tensor, valid_BT: Tensor | None) -> Tensor:
    """``x`` of shape (B, T, ...), zero at invalid tokens."""
    return (
        x
        if valid_BT is None
        else x.masked_fill(~valid_BT.reshape(*valid_BT.shape, *(1,) * (x.dim() - 2)), 0.0)
    )


def _filled(x_BTHK: Tensor) -> Tensor:
    """Heads filled up to the next size that fla is given."""
    return F.pad(x_BTHK, (0, _room(x_BTHK.shape[-1]))).contiguous()


def _filled_state(state_BHKV: Tensor | None) -> Tensor | None:
    if state_BHKV is None:
        return None
    K, V = state_BHKV.shape[-2:]
    return F.pad(state_BHKV.float(), (0, _room(V), 0, _room(K))).contiguous()


def _room(size: int) -> int:
    return next(legal for legal in FLA_SIZES if legal >= size) - size
