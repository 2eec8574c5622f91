"""A small reader that is right: sums of values, gated by queries and keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from crossbreed.core.contracts.mixer import MixerDescriptor, Reader, StateSpec
from crossbreed.core.ledger import Cost, Work
from tests.conformance.small import Plain, offered


def offering_reader(cls: type, reader: type) -> list[MixerDescriptor]:
    """The descriptor of one small mixer that offers a reader."""
    (plain,) = offered(cls, reader=True)
    return [replace(plain, reader=reader, reader_config=Plain)]


class SumReader(Reader, nn.Module):
    """S_t = S_{t-1} / 2 + tanh(k_t) v_t of the mean key of a group, o_t = q_t S_t, with a gain for each channel."""

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__()
        self.heads = build.heads
        self.gain_HV = nn.Parameter(torch.ones(build.heads.heads, build.heads.value_size))

    def forward(
        self,
        q_BTHK: Tensor,
        k_BTGK: Tensor,
        v_BTHV: Tensor,
        x_BTD: Tensor,
        context: Any,
        state: Any,
        read_BT: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        B, T, H = *x_BTD.shape[:2], self.heads.heads
        write_BT = torch.ones(B, T, dtype=torch.bool) if context.valid_BT is None else context.valid_BT
        q_BTH1, k_BTH1 = (
            z.repeat_interleave(H // z.shape[2], 2).mean(-1, keepdim=True) for z in (q_BTHK, k_BTGK)
        )
        v_BTHV = v_BTHV.repeat_interleave(H // v_BTHV.shape[2], 2)
        S_BHV, found = self.carried(v_BTHV, state), []
        for t in range(T):
            begins_B11 = (write_BT & context.reset_BT)[:, t, None, None]
            new_BHV = S_BHV.masked_fill(begins_B11, 0.0) / 2 + torch.tanh(k_BTH1[:, t]) * v_BTHV[:, t]
            S_BHV = torch.where(write_BT[:, t, None, None], new_BHV, S_BHV)
            found.append(S_BHV)
        shown_BT = write_BT if read_BT is None else write_BT & read_BT
        o_BTHV = q_BTH1 * torch.stack(found, 1) * self.gain_HV * shown_BT[..., None, None]
        return o_BTHV, None if state is None else {"S": S_BHV}

    def carried(self, v_BTHV: Tensor, state: Any) -> Tensor:
        return torch.zeros_like(v_BTHV[:, 0]) if state is None else state["S"]

    def state_specs(self) -> tuple[StateSpec, ...]:
        return (StateSpec("S", (self.heads.heads, self.heads.value_size)),)

    def init_state(self, batch: int, *, slots: int = 0, dtype: Any = None, device: Any = None) -> Any:
        return {"S": torch.zeros(batch, self.heads.heads, self.heads.value_size, dtype=dtype, device=device)}

    @staticmethod
    def cost(config: Any, heads: Any, d_model: int, shape: Any, depths: int = 1) -> Cost:
        count = heads.heads * heads.value_size
        return Cost(
            write=Work(),
            parameters=count,
            active_parameters=count,
            state_bytes=count * shape.dtype_bytes,
        )
