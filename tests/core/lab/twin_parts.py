"""A plugin file with a mixer that has a fused backend beside the reference; it can be told to be wrong on one kind of device."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

from crossbreed import hookimpl
from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.contracts.mixer import Mixer, MixerDescriptor, StateSpec
from crossbreed.core.errors import MissingCapability
from crossbreed.core.ledger import Cost, Work

CHUNK = 64
RATE = 0.9


class TwinConfig(BaseModel):
    """fault: what the fused backend gets wrong. device: the kind of device on which it does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fault: Literal["", "tail", "state", "gradient", "raise", "nan"] = ""
    device: str = "cpu"


class Twin(Mixer, nn.Module):
    """S_t = 0.9 S_{t-1} + x_t w: by steps (reference), or by one product with a matrix of decays (fused)."""

    def __init__(self, config: TwinConfig, build: Any) -> None:
        nn.Module.__init__(self)
        if build.backend not in ("auto", "reference", "fused"):
            raise MissingCapability(f"mixer 'twin' has no backend {build.backend!r}")
        self.config, self.width = config, build.d_model
        self.backend = "reference" if build.backend == "reference" else "fused"
        self.inner = nn.Linear(build.d_model, build.d_model, bias=False)

    def forward(self, x_BTD, context, state, read_BT=None):
        u_BTD = self.inner(x_BTD)
        before_BD = torch.zeros_like(u_BTD[:, 0]) if state is None else state["S"].to(u_BTD.dtype)
        S_BTD = (self._steps if self.backend == "reference" else self._product)(u_BTD, before_BD)
        y_BTD = S_BTD if read_BT is None else S_BTD * read_BT[..., None]
        return y_BTD, None if state is None else {"S": self._kept(S_BTD).to(state["S"].dtype)}

    def _steps(self, u_BTD, S_BD):
        found = []
        for t in range(u_BTD.shape[1]):
            S_BD = RATE * S_BD + u_BTD[:, t]
            found.append(S_BD)
        return torch.stack(found, 1)

    def _product(self, u_BTD, before_BD):
        if self._wrong("raise"):
            raise RuntimeError("no kernel image is available")
        T = u_BTD.shape[1]
        number_T = torch.arange(T, device=u_BTD.device)
        power_TT = (number_T[:, None] - number_T).clamp(min=0)
        decay_TT = (RATE**power_TT).tril().to(u_BTD.dtype)
        if self._wrong("gradient"):
            u_BTD = u_BTD.detach() + (u_BTD - u_BTD.detach()) / 2
        S_BTD = decay_TT @ u_BTD + (RATE ** (number_T + 1))[:, None].to(u_BTD.dtype) * before_BD[:, None]
        if self._wrong("tail") and T > CHUNK:
            S_BTD = torch.cat((S_BTD[:, : T - T % CHUNK], u_BTD[:, T - T % CHUNK :]), 1)
        return S_BTD / 0 if self._wrong("nan") else S_BTD

    def _kept(self, S_BTD):
        return S_BTD[:, 0] if self._wrong("state") else S_BTD[:, -1]

    def _wrong(self, fault: str) -> bool:
        here = self.inner.weight.device.type == self.config.device
        return here and self.backend == "fused" and self.config.fault == fault

    def state_specs(self):
        return (StateSpec("S", (self.width,)),)

    def init_state(self, batch, *, slots=0, dtype=None, device=None):
        return {"S": torch.zeros(batch, self.width, dtype=dtype, device=device)}

    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):
        square = d_model * d_model
        return Cost(
            write=Work.product(2.0 * square, weights=square),
            parameters=square,
            active_parameters=square,
            state_bytes=d_model * shape.dtype_bytes,
        )


@hookimpl
def register_mixers():
    able = MixerCapabilities(axis="sequence", packing=False, backends=("reference", "fused"))
    return [MixerDescriptor("twin", Twin, TwinConfig, able, "a recurrence with two implementations")]
