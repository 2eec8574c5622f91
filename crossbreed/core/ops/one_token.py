"""What mixers need for one decoded token of every row, with everything that varies between tokens read on the device.

On a CUDA device each is a kernel or two, which a recorded step replays; elsewhere it is plain PyTorch. A row that is not read
gives zeros. On the device it costs nothing that grows with the context, and one row alone no weights either.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from crossbreed.core.ops import kernels
from crossbreed.core.ops.attention import attention as attention_over
from crossbreed.core.ops.chunks import compute_dtype, product_dtype
from crossbreed.core.ops.delta_rule import gated_delta_rule_recurrent
from crossbreed.core.ops.gated import silu_times
from crossbreed.core.ops.norm import gated_rms_norm, l2_norm, rms_norm
from crossbreed.core.ops.short_conv import short_conv
from crossbreed.core.ops.ssd import ssd_recurrent

LARGEST_FOLDED = 4096
"""Channels of a norm that every program of a product makes by itself."""
WIDE_HEAD = 256
"""Largest head of the kernels."""


class Normed:
    """x = weight h / rms(h) over the last dimension, made when it is asked for, or on its way by the product that reads it.

    gate: x is times silu(gate); with ``gate_first`` it is the norm of h silu(gate).
    """

    def __init__(
        self, h: Tensor, weight: Tensor, eps: float, gate: Tensor | None = None, gate_first: bool = False
    ) -> None:
        self.h, self.weight, self.eps, self.gate, self.gate_first = h, weight, eps, gate, gate_first
        self.made: Tensor | None = None

    @property
    def x(self) -> Tensor:
        if self.made is None:
            given = self.weight, self.eps
            self.made = (
                rms_norm(self.h, *given)
                if self.gate is None
                else gated_rms_norm(self.h, self.gate, *given, gate_first=self.gate_first)
            )
        return self.made


def linear(
    x_B1D: Tensor | Normed,
    weight_OD: Tensor,
    read_B: Tensor | None = None,
    *,
    always: int = 0,
    gated: bool = False,
    clear: bool = False,
    onto_B1O: Tensor | None = None,
) -> Tensor:
    """y_B1O = x W^T, in the dtype that products have here.

    Args:
        x_B1D: the input, or the heads that it is the norm of.
        read_B: rows that matter. A single one is left out on the device where it does not, which gives zeros.
        always: how many of the outputs, the first ones, matter in every row.
        gated: the input is silu(x[..., :D]) * x[..., D:].
        clear: rows that do not matter are made zero, wherever they are; else they are computed as they come.
        onto_B1O: what y is added to.
    """
    h = x_B1D.h if isinstance(x_B1D, Normed) else x_B1D
    narrow = product_dtype(h)
    if kernels.usable(h) and h.shape[:2] == (1, 1) and narrow != torch.float32:
        from crossbreed.core.ops.kernels.token_linear import token_linear

        if isinstance(x_B1D, Normed) and (x_B1D.made is not None or h.shape[-1] > LARGEST_FOLDED):
            x_B1D = x_B1D.x
        y_O = token_linear(
            x_B1D if isinstance(x_B1D, Normed) else x_B1D.flatten().contiguous(),
            weight_OD.to(narrow),
            read_B,
            always=always,
            gated=gated,
            onto_O=None if onto_B1O is None else onto_B1O.flatten(),
        )
        return y_O.view(1, 1, -1)
    if isinstance(x_B1D, Normed):
        x_B1D = x_B1D.x
    x_B1D = silu_times(x_B1D) if gated else x_B1D.flatten(2)
    y_B1O = F.linear(x_B1D, weight_OD)
    reads_B11 = None if read_B is None or not clear else read_B[:, None, None]
    if onto_B1O is None:
        return y_B1O if reads_B11 is None else y_B1O.masked_fill(~reads_B11, 0.0)
    sum_B1O = onto_B1O + y_B1O
    return sum_B1O if reads_B11 is None else torch.where(reads_B11, sum_B1O, onto_B1O)


def attention(
    q_B1HK: Tensor,
    k_BSGK: Tensor,
    v_BSGV: Tensor,
    position_BS: Tensor,
    document_BS: Tensor,
    *,
    position_B: Tensor,
    document_B: Tensor,
    read_B: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
    top_k: int | None = None,
) -> Tensor:
    """Attention of one query a row over the slots of its own document, up to its own position.

    Args:
        q_B1HK: queries; consecutive heads share one of the G groups.
        k_BSGK, v_BSGV: every slot there is room for, each at its token's position, modulo S.
        position_BS, document_BS: int32, of the tokens in the slots.
        position_B, document_B: of the queries, whose own tokens are in their slots already.
        read_B: bool, rows that matter.
        window: how many of the last tokens a query sees, its own included; None sees all.
        scale: of the scores; 1/sqrt(K) when None.
        top_k: see ``attention``; PyTorch computes it.

    Returns:
        `o_B1HV`; zero for a row that is not read.
    """
    K, V = q_B1HK.shape[-1], v_BSGV.shape[-1]
    if kernels.usable(q_B1HK) and top_k is None and max(K, V) <= WIDE_HEAD:
        from crossbreed.core.ops.kernels.decode_attention import decode_attention

        o_BHV = decode_attention(
            q_B1HK[:, 0],
            k_BSGK,
            v_BSGV,
            position_BS,
            document_BS,
            position_B,
            document_B,
            read_B,
            window,
            K**-0.5 if scale is None else scale,
        )
        return o_BHV.unsqueeze(1)
    visible_BS = (position_BS <= position_B[:, None]) & (document_BS == document_B[:, None])
    if window is not None:
        visible_BS = visible_BS & (position_BS > position_B[:, None] - window)
    if read_B is not None:
        visible_BS = visible_BS & read_B[:, None]
    k_BSGK, v_BSGV = k_BSGK.to(q_B1HK.dtype), v_BSGV.to(q_B1HK.dtype)
    return attention_over(q_B1HK, k_BSGK, v_BSGV, visible_BTS=visible_BS[:, None], scale=scale, top_k=top_k)


def write_slots(
    caches: tuple[Tensor, Tensor, Tensor, Tensor],
    k_B1GK: Tensor,
    v_B1GV: Tensor,
    position_B: Tensor,
    trace_B: Tensor | None,
    ring: int,
    never: int,
) -> Tensor:
    """Put one token of every row into slot ``position mod ring`` of (k, v, document, position), in place.

    Outside ``trace_B`` its position is written as ``never``. Returns int32 document_B: that of the token before, or after the last
    one that the row has where the position is 0. Empty slots are of document -1.
    """
    if kernels.usable(k_B1GK):
        from crossbreed.core.ops.kernels.decode_attention import write_slots as fused

        together = k_B1GK[:, 0].contiguous(), v_B1GV[:, 0].contiguous()
        return fused(caches, *together, position_B, trace_B, ring, never)
    row_B, documents = torch.arange(len(position_B), device=position_B.device), caches[2].clamp(min=0)
    # The slot before is the last one where nothing was written yet.
    before_B = documents[row_B, (position_B - 1) % ring % documents.shape[1]]
    document_B = torch.where(position_B == 0, documents.amax(1) + 1, before_B)
    index = row_B, position_B % ring
    seen_B = position_B if trace_B is None else position_B.masked_fill(~trace_B, never)
    for slots, new in zip(caches, (k_B1GK[:, 0], v_B1GV[:, 0], document_B, seen_B), strict=True):
        slots.index_put_(index, new.to(slots.dtype))
    return document_B


def recurrence(
    q_B1QK: Tensor,
    k_B1GK: Tensor,
    v_B1UV: Tensor,
    x_B1D: Tensor,
    weight_OD: Tensor,
    A_log_H: Tensor,
    dt_bias_H: Tensor,
    state_BHKV: Tensor,
    *,
    position_B: Tensor,
    skip_H: Tensor | None = None,
    read_B: Tensor | None = None,
    trace_B: Tensor | None = None,
    normalise: bool = False,
    most: float = 1.0,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """One token of the gated delta rule or, where x gives no strengths, of Mamba-2's recurrence (``delta_rule``, ``ssd``).

    x W^T is a number a head, or a second one for its strength. With t = softplus(number + dt_bias) the decay is
    exp(-exp(A_log) t); the delta rule writes by ``most`` sigmoid(strength), Mamba-2 by t.

    Args:
        q_B1QK, k_B1GK, v_B1UV: queries, keys and values, whose heads are shared by consecutive ones of the H.
        x_B1D, weight_OD: O is H, or 2H with strengths behind.
        state_BHKV: fp32 (float64 for float64 inputs); a row at position 0 starts from zeros.
        skip_H: adds that times the value.
        read_B, trace_B: bool; what is read, and what leaves a trace in the state (None: all).
        normalise: queries and keys have unit length.
        scale: of the queries.

    Returns:
        `o_B1HV` in the values' dtype, zero where not read, and the new state.
    """
    H, K, V = state_BHKV.shape[1:]
    if kernels.usable(v_B1UV) and max(K, V) <= WIDE_HEAD:
        from crossbreed.core.ops.kernels.recurrent_step import recurrent_step

        o_BHV, new_BHKV = recurrent_step(
            q_B1QK[:, 0],
            k_B1GK[:, 0],
            v_B1UV[:, 0],
            x_B1D[:, 0],
            weight_OD.to(product_dtype(x_B1D)),
            A_log_H,
            dt_bias_H,
            skip_H,
            state_BHKV,
            position_B,
            read_B,
            trace_B,
            normalise,
            most,
            scale,
        )
        return o_BHV.unsqueeze(1), new_BHKV
    wide = compute_dtype(v_B1UV)
    if normalise:
        q_B1QK, k_B1GK = l2_norm(q_B1QK), l2_norm(k_B1GK)
    decay_B1H, *strengths = F.linear(x_B1D, weight_OD).split(H, -1)
    step_B1H = F.softplus(decay_B1H.to(wide) + dt_bias_H.to(wide))
    if trace_B is not None:
        step_B1H = step_B1H.masked_fill(~trace_B[:, None, None], 0.0)
    log_decay_B1H = step_B1H * -A_log_H.to(wide).exp()
    q_B1HK, k_B1HK, v_B1HV = (x.repeat_interleave(H // x.shape[2], dim=2) for x in (q_B1QK, k_B1GK, v_B1UV))
    begin: dict[str, Any] = {"state_BHKV": state_BHKV, "reset_BT": position_B[:, None] == 0}
    with torch.autocast(v_B1HV.device.type, enabled=False):
        if not strengths:
            o_B1HV, new_BHKV = ssd_recurrent(
                q_B1HK, k_B1HK, v_B1HV, log_decay_B1H, step_BTH=step_B1H, skip_H=skip_H, **begin
            )
        else:
            beta_B1H = strengths[0].to(wide).sigmoid() * most
            if trace_B is not None:
                beta_B1H = beta_B1H.masked_fill(~trace_B[:, None, None], 0.0)
            o_B1HV, new_BHKV = gated_delta_rule_recurrent(
                q_B1HK, k_B1HK, v_B1HV, log_decay_B1H, beta_B1H, scale=scale, **begin
            )
    o_B1HV = o_B1HV.to(v_B1HV.dtype)
    return o_B1HV if read_B is None else o_B1HV.masked_fill(~read_B[:, None, None, None], 0.0), new_BHKV


def convolution(
    x_B1C: Tensor,
    weight_CW: Tensor,
    bias_C: Tensor | None,
    tail_BWC: Tensor,
    *,
    position_B: Tensor,
    silu: bool = False,
) -> tuple[Tensor, Tensor]:
    """(y_B1C, new tail) of ``short_conv``, followed by SiLU if asked for; a row at position 0 starts from an empty tail."""
    if kernels.usable(x_B1C):
        from crossbreed.core.ops.kernels.recurrent_step import conv_step

        y_BC, after_BWC = conv_step(x_B1C[:, 0].contiguous(), weight_CW, bias_C, tail_BWC, position_B, silu)
        return y_BC.unsqueeze(1), after_BWC
    tail_BWC = tail_BWC.masked_fill((position_B == 0)[:, None, None], 0.0)
    weight_CW, bias_C = weight_CW.to(x_B1C.dtype), None if bias_C is None else bias_C.to(x_B1C.dtype)
    y_B1C, after_BWC = short_conv(x_B1C, weight_CW, bias_C, tail_BWC=tail_BWC)
    return F.silu(y_B1C) if silu else y_B1C, after_BWC
