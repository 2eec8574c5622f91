"""Softmax attention over key slots, with grouped queries, windows and arbitrary visibility."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from crossbreed.core.errors import ConfigError
from crossbreed.core.ops.read_attention import read_attention, skippable

Kernel = Literal["reference", "sdpa", "flash_attn"]
_MASKED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_ORDER = {True: [SDPBackend.CUDNN_ATTENTION, *_MASKED], False: _MASKED}
"""PyTorch's kernels, the fastest on Hopper first, for a causal triangle and for everything else."""


def causal_mask(
    tokens: int, slots: int, window: int | None = None, device: torch.device | str | None = None
) -> Tensor:
    """`visible_TS`: query t sits at slot `slots - tokens + t` and sees the slots up to it, itself included.

    With a window it sees the last `window` of those only.
    """
    if window is not None and window < 1:
        raise ConfigError(f"window is {window}; a query sees at least its own slot, so it must be 1 or more.")
    query_T1 = torch.arange(slots - tokens, slots, device=device).unsqueeze(1)
    slot_1S = torch.arange(slots, device=device).unsqueeze(0)
    visible_TS = slot_1S <= query_T1
    return visible_TS if window is None else visible_TS & (slot_1S > query_T1 - window)


def attention(
    q_BTHK: Tensor,
    k_BSGK: Tensor,
    v_BSGV: Tensor,
    *,
    visible_BTS: Tensor | None = None,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    top_k: int | None = None,
    read_BT: Tensor | None = None,
    kernel: Kernel = "reference",
) -> Tensor:
    """Attention of T queries over S slots (Vaswani et al., 2017, eq. 1); consecutive query heads share a group.

    Args:
        q_BTHK: queries; H is a multiple of the groups G.
        k_BSGK, v_BSGV: keys and values.
        visible_BTS: which slots each query sees. When given it replaces `causal` and `window`.
        causal: queries are the last T of the S slots, each sees the slots up to its own.
        window: with `causal`, how many slots a query sees, its own included.
        scale: of the scores, positive; 1/sqrt(K) when None.
        top_k: of the slots it sees, a head of a query attends to those of the k largest scores and to what ties with the
            last of them: ties follow from the scores alone, never from the order of slots. None attends to all. All are
            scored once for the choice, which has no gradient, and again in the attention.
        read_BT: bool, the queries that are wanted, or None for all. With a kernel other than ``reference``, over a causal triangle
            of 16 bits, the others are not computed; elsewhere they are and then cleared.
        kernel: who computes. The others than ``reference`` want a CUDA device and 16 bits; ``flash_attn`` serves a causal
            triangle or window of heads of one size, and leaves what has a mask of its own to ``sdpa``.

    Returns:
        `o_BTHV`; zero for a query that sees nothing or is not wanted.

    Raises:
        ConfigError: shapes that do not fit, or a window without `causal`.
    """
    _check(q_BTHK, k_BSGK, v_BSGV, visible_BTS, causal, window)
    T, S = q_BTHK.shape[1], k_BSGK.shape[1]
    if top_k is not None and top_k >= S:
        top_k = None
    lower_triangle = (
        visible_BTS is None and causal and 1 < T == S and (window is None or window >= S) and top_k is None
    )
    if read_BT is not None and lower_triangle and kernel != "reference" and skippable(q_BTHK, v_BSGV):
        return read_attention(q_BTHK, k_BSGK, v_BSGV, read_BT, scale)
    if kernel == "flash_attn" and visible_BTS is None and top_k is None:
        return _wanted(_flash_attn(q_BTHK, k_BSGK, v_BSGV, causal, window, scale), read_BT)
    if visible_BTS is not None:
        # A row without a slot is a softmax of nothing. It looks everywhere instead, and its output is cleared.
        sees_BT = visible_BTS.any(-1)
        visible = (visible_BTS | ~sees_BT.unsqueeze(-1)).unsqueeze(1)
        read_BT = sees_BT if read_BT is None else sees_BT & read_BT
    elif not causal or lower_triangle:
        visible = None
    elif T == 1:
        visible = None
        if window is not None and window < S:
            k_BSGK, v_BSGV = k_BSGK[:, S - window :], v_BSGV[:, S - window :]
    else:
        visible = causal_mask(T, S, window, q_BTHK.device)
    if top_k is not None and top_k < k_BSGK.shape[1]:
        visible = _strongest(q_BTHK, k_BSGK, visible, top_k)
    # cuDNN plans each new shape for about a tenth of a second: right for pieces that come again, not for a growing cache.
    fastest_first = (
        nullcontext() if kernel == "reference" else sdpa_kernel(_ORDER[lower_triangle], set_priority=True)
    )
    with fastest_first:
        o_BHTV = F.scaled_dot_product_attention(
            q_BTHK.transpose(1, 2),
            k_BSGK.transpose(1, 2),
            v_BSGV.transpose(1, 2),
            attn_mask=visible,
            is_causal=lower_triangle,
            scale=scale,
            enable_gqa=q_BTHK.shape[2] != k_BSGK.shape[2],
        )
    return _wanted(o_BHTV.transpose(1, 2), read_BT)


def attention_reference(
    q_BTHK: Tensor,
    k_BSGK: Tensor,
    v_BSGV: Tensor,
    *,
    visible_BTS: Tensor | None = None,
    causal: bool = True,
    window: int | None = None,
    scale: float | None = None,
    top_k: int | None = None,
) -> Tensor:
    """`attention` written out in the dtype of its inputs: the reference of every faster path."""
    _check(q_BTHK, k_BSGK, v_BSGV, visible_BTS, causal, window)
    B, T, H, K = q_BTHK.shape
    S, G = k_BSGK.shape[1:3]
    scale = K**-0.5 if scale is None else scale
    if visible_BTS is None:
        everything = torch.ones(T, S, dtype=torch.bool, device=q_BTHK.device)
        visible_BTS = (causal_mask(T, S, window, q_BTHK.device) if causal else everything).expand(B, T, S)
    q_BTGrK = q_BTHK.reshape(B, T, G, H // G, K)
    scores_BGrTS = torch.einsum("btgrk,bsgk->bgrts", q_BTGrK, k_BSGK) * scale
    hidden_BTS = ~visible_BTS
    blind_BT = hidden_BTS.all(-1)
    scores_BGrTS = scores_BGrTS.masked_fill((hidden_BTS & ~blind_BT[..., None])[:, None, None], -torch.inf)
    if top_k is not None and top_k < S:
        falling_BGrTS = scores_BGrTS.sort(-1, descending=True).values
        weaker_BGrTS = scores_BGrTS < falling_BGrTS[..., top_k - 1 : top_k]
        scores_BGrTS = scores_BGrTS.masked_fill(weaker_BGrTS, -torch.inf)
    weights_BGrTS = scores_BGrTS.softmax(-1).masked_fill(blind_BT[:, None, None, :, None], 0.0)
    return torch.einsum("bgrts,bsgv->btgrv", weights_BGrTS, v_BSGV).reshape(B, T, H, -1)


def _wanted(o_BTHV: Tensor, read_BT: Tensor | None) -> Tensor:
    return o_BTHV if read_BT is None else o_BTHV.masked_fill(~read_BT[:, :, None, None], 0.0)


def _flash_attn(
    q_BTHK: Tensor, k_BSGK: Tensor, v_BSGV: Tensor, causal: bool, window: int | None, scale: float | None
) -> Tensor:
    """The kernels of the flash-attn package; imported now if they were not yet."""
    from flash_attn import flash_attn_func

    seen = (-1, -1) if window is None else (window - 1, 0)
    o_BTHV: Tensor = flash_attn_func(
        q_BTHK, k_BSGK, v_BSGV, softmax_scale=scale, causal=causal, window_size=seen
    )
    return o_BTHV


@torch.no_grad()
def _strongest(q_BTHK: Tensor, k_BSGK: Tensor, visible: Tensor | None, top_k: int) -> Tensor:
    """bool (B, H, T, S): the visible slots of the k largest scores of each head of a query."""
    B, T, H, K = q_BTHK.shape
    G = k_BSGK.shape[2]
    q_BGrTK = q_BTHK.view(B, T, G, H // G, K).permute(0, 2, 3, 1, 4)
    scores_BHTS = (q_BGrTK @ k_BSGK.permute(0, 2, 3, 1).unsqueeze(2)).flatten(1, 2)
    if visible is not None:
        scores_BHTS = scores_BHTS.masked_fill(~visible, -torch.inf)
    least_BHT1 = scores_BHTS.topk(top_k, dim=-1).values[..., -1:]
    strong_BHTS = scores_BHTS >= least_BHT1
    return strong_BHTS if visible is None else strong_BHTS & visible


def _check(
    q_BTHK: Tensor,
    k_BSGK: Tensor,
    v_BSGV: Tensor,
    visible_BTS: Tensor | None,
    causal: bool,
    window: int | None,
) -> None:
    B, T, H, K = q_BTHK.shape
    S, G = k_BSGK.shape[1:3]
    if k_BSGK.shape != (B, S, G, K) or v_BSGV.shape[:3] != (B, S, G) or H % G:
        raise ConfigError(
            f"queries {tuple(q_BTHK.shape)}, keys {tuple(k_BSGK.shape)} and values {tuple(v_BSGV.shape)} do not fit; "
            "batch, slots and key size must agree and the query heads be a multiple of the key/value heads."
        )
    if visible_BTS is not None:
        if visible_BTS.shape != (B, T, S):
            raise ConfigError(f"visible has shape {tuple(visible_BTS.shape)}; the rule is {(B, T, S)}.")
        return
    if causal and T > S:
        raise ConfigError(
            f"{T} causal queries over {S} slots; every query needs its own slot, so T is at most S."
        )
    if window is not None and not causal:
        raise ConfigError(f"window is {window} without causal; a window counts back from a query's own slot.")
    if window is not None and window < 1:
        raise ConfigError(f"window is {window}; a query sees at least its own slot, so it must be 1 or more.")
