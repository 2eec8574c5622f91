"""my_mixer: each token sees the one before it, in proportions learned by channel.

Legend for tensor names: B batch, T tokens, D model width, W inner width.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import BaseModel, Field
from torch import Tensor, nn

from crossbreed import (
    Context,
    Cost,
    Integers,
    Mixer,
    MixerBuild,
    MixerCapabilities,
    MixerDescriptor,
    Parts,
    Shape,
    StateSpec,
    Work,
    hookimpl,
)

INIT_STD = 0.02


class MyMixerConfig(BaseModel, frozen=True, extra="forbid"):
    """width: channels between the two projections."""

    width: int = Field(default=32, ge=1)


class MyMixer(Mixer, nn.Module):
    """y_t = W_out (m * v_t + (1 - m) * v_{t-1}) with v = W_in x and m = sigmoid(a weight a channel).

    Write always, read where chosen: every valid token is kept for the next one; y is zero where nothing is read.
    """

    def __init__(self, config: MyMixerConfig, build: MixerBuild) -> None:
        super().__init__()
        self.config = config
        self.project = nn.Linear(build.d_model, config.width, bias=False)
        self.out = nn.Linear(config.width, build.d_model, bias=False)
        # Nothing outside initialises a mixer's weights.
        for linear in (self.project, self.out):
            nn.init.normal_(linear.weight, std=INIT_STD)
        self.mix_W = nn.Parameter(torch.zeros(config.width))

    def forward(
        self,
        x_BTD: Tensor,
        context: Context,
        state: dict[str, Tensor] | None,
        read_BT: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        v_BTW = self.project(x_BTD)
        # One path for a whole text, a piece of it and a single token: what came before is in the state.
        carried_B1W = torch.zeros_like(v_BTW[:, :1]) if state is None else state["last"].to(v_BTW.dtype)
        before_BTW = torch.cat((carried_B1W, v_BTW[:, :-1]), 1)
        # Position 0 starts a document, which sees nothing of the one before it.
        before_BTW = before_BTW.masked_fill(context.reset_BT.unsqueeze(-1), 0.0)
        m_W = torch.sigmoid(self.mix_W)
        y_BTD = self.out(m_W * v_BTW + (1 - m_W) * before_BTW)
        for mask_BT in (read_BT, context.valid_BT):
            if mask_BT is not None:
                y_BTD = y_BTD.masked_fill(~mask_BT.unsqueeze(-1), 0.0)
        return y_BTD, None if state is None else {"last": _last(v_BTW, context.valid_BT, carried_B1W)}

    def state_specs(self) -> tuple[StateSpec, ...]:
        """Sizes after the batch axis. A recurrent state that accumulates says ``float32`` in place of ``activation``."""
        return (StateSpec("last", (1, self.config.width)),)

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> dict[str, Tensor]:
        return {"last": torch.zeros(batch, 1, self.config.width, dtype=dtype, device=device)}

    def output_parameters(self) -> frozenset[str]:
        """The matrices that write into the residual stream: a block may rescale these."""
        return frozenset({"out.weight"})

    @staticmethod
    def cost(config: Any, d_model: int, shape: Shape, depths: int = 1, parts: Parts | None = None) -> Cost:
        """Without building weights. ``write`` is paid by every token, ``reads`` by those that read; element-wise work does
        not count. ``Work.product`` adds a backward pass of twice the forward one."""
        matrix, narrow = d_model * config.width, shape.dtype_bytes
        write = Work.product(
            2.0 * matrix,
            weights=matrix,
            state_traffic_bytes=2.0 * config.width * narrow,
            kept_bytes=float((d_model + config.width) * narrow),
        )
        read = Work.product(2.0 * matrix, weights=matrix, kept_bytes=3.0 * config.width * narrow)
        parameters = 2 * matrix + config.width
        return Cost(
            write,
            (read,),
            parameters=parameters,
            active_parameters=parameters,
            state_bytes=float(config.width * narrow),
            small_parameters=config.width,
        )


def _last(v_BTW: Tensor, valid_BT: Tensor | None, carried_B1W: Tensor) -> Tensor:
    """The last valid token of each row (valid ones are a prefix), or what was carried where there is none."""
    if valid_BT is None:
        return v_BTW[:, -1:]
    count_B = valid_BT.sum(1)
    row_B = torch.arange(len(count_B), device=v_BTW.device)
    return torch.cat((carried_B1W, v_BTW), 1)[row_B, count_B].unsqueeze(1)


@hookimpl
def register_mixers() -> list[MixerDescriptor]:
    return [
        MixerDescriptor(
            name="my_mixer",
            factory=MyMixer,
            config=MyMixerConfig,
            # Tokens that do not read are computed and masked (``dense`` execution), and charged so.
            capabilities=MixerCapabilities("sequence"),
            summary="each token sees the one before it",
            # What a budget may move to meet its FLOPs and parameters.
            free={"width": Integers(1, 4096)},
        )
    ]
