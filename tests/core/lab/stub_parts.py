"""A plugin file for the lab's tests: a small causal mixer that can be told to fail in every way a plugin may."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.distributed as dist
from pydantic import BaseModel
from torch import nn

from crossbreed import hookimpl
from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.contracts.mixer import Mixer, MixerDescriptor
from crossbreed.core.ledger import Cost, Work


class ShiftConfig(BaseModel):
    """fault: what happens at training step ``at``, on device ``rank`` alone where a batch is shared. dropout: drawn from torch's own generator."""

    hidden: int = 32
    dropout: float = 0.0
    fault: Literal[
        "", "nan", "raise", "memory", "allocator", "interrupt", "miscount", "misstate", "no_room"
    ] = ""
    at: int = 0
    rank: int = 0


class Shift(Mixer, nn.Module):
    """A two-layer map of each token and the one before it."""

    def __init__(self, config: ShiftConfig, build: Any) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.backend = "reference"
        self.inner = nn.Linear(2 * build.d_model, config.hidden, bias=False)
        self.outer = nn.Linear(config.hidden, build.d_model, bias=False)

    def forward(self, x_BTD, context, state, read_BT=None):
        fresh = state is None or not state["last_B1D"].shape[1]
        before_B1D = torch.zeros_like(x_BTD[:, :1]) if fresh else state["last_B1D"].to(x_BTD.dtype)
        shifted_BTD = torch.cat([before_B1D, x_BTD[:, :-1]], dim=1)
        hidden_BTF = torch.relu(self.inner(torch.cat([x_BTD, shifted_BTD], dim=-1)))
        hidden_BTF = nn.functional.dropout(hidden_BTF, self.config.dropout, training=context.training)
        y_BTD = self.outer(hidden_BTF)
        rank = dist.get_rank() if dist.is_initialized() else 0
        if context.training and context.step == self.config.at and rank == self.config.rank:
            y_BTD = self._fail(y_BTD)
        if read_BT is not None:
            y_BTD = y_BTD * read_BT[..., None]
        return y_BTD, None if state is None else {"last_B1D": x_BTD[:, -1:]}

    def _fail(self, y_BTD):
        if self.config.fault == "nan":
            return y_BTD * float("nan")
        if self.config.fault == "raise":
            raise ValueError("shapes 3 and 4 do not fit")
        if self.config.fault == "memory":
            raise MemoryError("host is full")
        if self.config.fault == "allocator":
            torch.empty(1 << 60, dtype=torch.uint8, device=y_BTD.device)
        if self.config.fault == "interrupt":
            raise KeyboardInterrupt
        return y_BTD

    def init_state(self, batch, *, slots=0, dtype=None, device=None):
        tokens = 0 if self.config.fault == "no_room" else 1
        return {
            "last_B1D": torch.zeros(batch, tokens, self.inner.in_features // 2, dtype=dtype, device=device)
        }

    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):
        weights = 3 * d_model * config.hidden + (config.fault == "miscount")
        return Cost(
            reads=(Work.product(2.0 * weights),),
            parameters=weights,
            active_parameters=weights,
            state_bytes=d_model * shape.dtype_bytes + (config.fault == "misstate"),
        )


SPARSE = {"train": "sparse", "prefill": "sparse", "decode": "sparse"}


@hookimpl
def register_mixers():
    able = MixerCapabilities(axis="sequence", execution=SPARSE)
    return [
        MixerDescriptor("shift", lambda: Shift, ShiftConfig, able, "mixes a token with the one before it")
    ]
