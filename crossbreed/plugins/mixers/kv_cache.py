"""The key/value cache of softmax attention: slots by position, so that packed, ragged and windowed rows need no care.

A token at position p of its document sits in slot p, or p mod window: a sliding window is a ring that holds exactly the
tokens the next query may see, and a new document overwrites its row's old one from slot 0. Every slot carries its
document's running number in the row and its position; what a query sees follows from the two alone, never from the
order or the number of slots. ``length`` counts the tokens fed, on the host, so that growth needs no synchronisation.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import HeadShape, State, StateSpec
from crossbreed.core.errors import ConfigError
from crossbreed.core.ops import one_token

EMPTY = -1
"""Document number of an empty slot and of an invalid token; no query carries it."""
NEVER = torch.iinfo(torch.int32).max
"""Position of a token that left no trace; no query comes after it."""


def specs(heads: HeadShape) -> tuple[StateSpec, ...]:
    return (
        StateSpec("k", ("slots", heads.key_heads, heads.key_size)),
        StateSpec("v", ("slots", heads.value_heads, heads.value_size)),
        StateSpec("document", ("slots",), "int32"),
        StateSpec("position", ("slots",), "int32"),
        StateSpec("length", (), "int64"),
    )


def slot_bytes(heads: HeadShape, dtype_bytes: int) -> int:
    """Bytes of one slot: key, value, document and position."""
    numbers = heads.key_heads * heads.key_size + heads.value_heads * heads.value_size
    return numbers * dtype_bytes + 8


def empty(
    batch: int,
    slots: int,
    heads: HeadShape,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> State:
    """A cache without tokens, with room for ``slots``."""
    return {
        "k": torch.zeros(batch, slots, heads.key_heads, heads.key_size, dtype=dtype, device=device),
        "v": torch.zeros(batch, slots, heads.value_heads, heads.value_size, dtype=dtype, device=device),
        "document": torch.full((batch, slots), EMPTY, dtype=torch.int32, device=device),
        "position": torch.zeros(batch, slots, dtype=torch.int32, device=device),
        "length": torch.zeros((), dtype=torch.int64, device="cpu"),
    }


def document_numbers(state: State | None, context: Context) -> Tensor:
    """int32 (B, T): the running number of each token's document in its row; EMPTY where invalid."""
    starts_BT = context.reset_BT
    if context.valid_BT is not None:
        starts_BT = starts_BT & context.valid_BT
    number_BT = starts_BT.cumsum(1, dtype=torch.int32)
    if state is not None and int(state["length"]):
        number_BT = number_BT + state["document"].amax(1, keepdim=True).clamp(min=0)
    return number_BT if context.valid_BT is None else number_BT.masked_fill(~context.valid_BT, EMPTY)


def traced_positions(context: Context, trace_BT: Tensor | None) -> Tensor:
    """Positions as queries must see them: NEVER where a token leaves no trace (None: all leave one)."""
    positions_BT = context.positions_BT
    return positions_BT if trace_BT is None else positions_BT.masked_fill(~trace_BT, NEVER)


def visible(
    document_BT: Tensor | None,
    position_BT: Tensor,
    document_BS: Tensor | None,
    position_BS: Tensor,
    window: int | None,
) -> Tensor:
    """bool (B, T, S): a query sees its own document up to its own position, the last ``window`` tokens of it.

    Documents are None where each row is one.
    """
    seen_BTS = position_BT[:, :, None] >= position_BS[:, None]
    if document_BT is not None and document_BS is not None:
        seen_BTS = seen_BTS & (document_BT[:, :, None] == document_BS[:, None])
    if window is None:
        return seen_BTS
    return seen_BTS & (position_BS[:, None] > position_BT[:, :, None] - window)


def used(state: State, window: int | None) -> State:
    """Views of the slots that may hold a token."""
    count = int(state["length"]) if window is None else min(int(state["length"]), window)
    return {name: state[name][:, :count] for name in ("k", "v", "document", "position")}


def write(
    state: State,
    k_BTGK: Tensor,
    v_BTGV: Tensor,
    document_BT: Tensor,
    context: Context,
    window: int | None,
    trace_BT: Tensor | None = None,
) -> State:
    """The cache after a piece. Without gradients the slots are written in place, as long as they have room.

    Only tokens a later query may see are kept: those of each row's last document, inside the window. Tokens outside
    ``trace_BT`` keep their slots, but no query sees them.
    """
    T = k_BTGK.shape[1]
    length = int(state["length"]) + T
    need = length if window is None else min(length, window)
    position_BT = context.positions_BT.to(torch.int32)
    slot_BT = context.positions_BT if window is None else context.positions_BT % window
    row_BT = torch.arange(slot_BT.shape[0], device=slot_BT.device).unsqueeze(1).expand_as(slot_BT)
    seen_BT = traced_positions(context, trace_BT).to(torch.int32)
    new = {"k": k_BTGK, "v": v_BTGV, "document": document_BT, "position": seen_BT}
    index: tuple[Tensor, ...] = (row_BT, slot_BT)
    keep_BT = _kept(document_BT, position_BT, context, window, T)
    if keep_BT is not None:
        at = keep_BT.nonzero(as_tuple=True)
        index = (at[0], slot_BT[at])
        new = {name: x[at] for name, x in new.items()}
    after = {}
    for name, values in new.items():
        slots = _with_room(state[name], need, EMPTY if name == "document" else 0)
        values = values.to(slots.dtype)
        after[name] = (
            slots.index_put(index, values) if torch.is_grad_enabled() else slots.index_put_(index, values)
        )
    after["length"] = torch.tensor(length, dtype=torch.int64, device="cpu")
    return after


def write_one(
    state: State,
    k_B1GK: Tensor,
    v_B1GV: Tensor,
    position_B: Tensor,
    window: int | None,
    trace_B1: Tensor | None = None,
) -> tuple[State, Tensor]:
    """(the cache after one token of every row, the documents of the tokens): in place, without a look from the host.

    A position of 0 begins a document. Raises ConfigError where the slots have no room.
    """
    length, slots = int(state["length"]) + 1, state["k"].shape[1]
    if slots < (length if window is None else min(length, window)):
        raise ConfigError(f"a recorded token is number {length} of its row, but the cache has {slots} slots")
    caches = state["k"], state["v"], state["document"], state["position"]
    trace_B = None if trace_B1 is None else trace_B1[:, 0]
    document_B = one_token.write_slots(caches, k_B1GK, v_B1GV, position_B, trace_B, window or slots, NEVER)
    return {**state, "length": torch.tensor(length, dtype=torch.int64, device="cpu")}, document_B


def _kept(
    document_BT: Tensor, position_BT: Tensor, context: Context, window: int | None, tokens: int
) -> Tensor | None:
    one_document = context.document_BT is None and context.valid_BT is None
    if one_document and (window is None or tokens <= window):
        return None
    last_B1 = document_BT.amax(1, keepdim=True)
    keep_BT = (document_BT == last_B1) & (document_BT != EMPTY)
    if window is not None:
        end_B1 = position_BT.masked_fill(~keep_BT, -1).amax(1, keepdim=True)
        keep_BT = keep_BT & (position_BT > end_B1 - window)
    return keep_BT


def _with_room(slots: Tensor, need: int, fill: int) -> Tensor:
    """The same slots with room for ``need``: exact with gradients, half as much again where room runs out without."""
    capacity = slots.shape[1]
    if capacity >= need:
        return slots
    room = need if torch.is_grad_enabled() else max(need, capacity * 3 // 2)
    return F.pad(slots, (*(0, 0) * (slots.dim() - 2), 0, room - capacity), value=fill)
