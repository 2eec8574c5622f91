"""An exponential moving average as a mixer.

Legend: B batch, T tokens, C tokens of a chunk, D model width, H heads, V channels of a head, W of all heads.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed import Context, Cost, Mixer, MixerBuild, Parts, Shape, StateSpec, Work
from ema_mixer import EmaConfig

CHUNK = 64
"""Tokens averaged at once: the ledger's chunk, so that what is counted is what is computed."""
INIT_STD = 0.02

State = dict[str, Tensor]


class Ema(Mixer, nn.Module):
    """m_t = a m_{t-1} + (1 - a) W_v x_t, and y_t = W_o(m_t * SiLU(W_g x_t)): one decay a in (0, 1) a head.

    Every valid token is written into the average; y is zero where not read. A document's first token starts the average
    anew. The state is the average after the last valid token, in fp32 at least.
    """

    def __init__(self, config: EmaConfig, build: MixerBuild) -> None:
        super().__init__()
        self.config = config
        self.value = nn.Linear(build.d_model, config.width, bias=False)
        self.gate = nn.Linear(build.d_model, config.width, bias=False)
        self.out = nn.Linear(config.width, build.d_model, bias=False)
        for linear in (self.value, self.gate, self.out):
            nn.init.normal_(linear.weight, std=INIT_STD)
        log_half_life_H = torch.linspace(math.log(config.shortest), math.log(config.longest), config.heads)
        decay_H = 0.5 ** torch.exp(-log_half_life_H)
        self.decay_logit_H = nn.Parameter(torch.log(decay_H / (1 - decay_H)))

    def forward(
        self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        H, V = self.config.heads, self.config.head_size
        v_BTHV = self.value(x_BTD).unflatten(-1, (H, V))
        mean_BTHV, last_BHV = self._average(v_BTHV, context, None if state is None else state["mean"])
        y_BTD = self.out(mean_BTHV.flatten(-2) * F.silu(self.gate(x_BTD)))
        for mask_BT in (read_BT, context.valid_BT):
            if mask_BT is not None:
                y_BTD = y_BTD.masked_fill(~mask_BT.unsqueeze(-1), 0.0)
        return y_BTD, None if state is None else {"mean": last_BHV}

    def _average(self, v_BTHV: Tensor, context: Context, carried: Tensor | None) -> tuple[Tensor, Tensor]:
        """The averages (in v's dtype), and the one after each row's last valid token (fp32 or float64).

        Chunks of tokens at a time: inside one, a product with the decays between positions that lie in one document.
        """
        wide = torch.promote_types(v_BTHV.dtype, torch.float32)
        B, T, H, V = v_BTHV.shape
        carried_BHV = v_BTHV.new_zeros(B, H, V, dtype=wide) if carried is None else carried.to(wide)
        valid_BT = torch.ones_like(context.reset_BT) if context.valid_BT is None else context.valid_BT
        with torch.autocast(v_BTHV.device.type, enabled=False):
            log_decay_H = F.logsigmoid(self.decay_logit_H.to(wide))
            fed_BTHV = v_BTHV.to(wide) * (1 - log_decay_H.exp())[:, None]
            found = []
            for start in range(0, T, CHUNK):
                piece = slice(start, min(start + CHUNK, T))
                mean_BCHV, carried_BHV = _chunk(
                    fed_BTHV[:, piece],
                    log_decay_H,
                    (context.reset_BT & valid_BT)[:, piece],
                    valid_BT[:, piece],
                    carried_BHV,
                )
                found.append(mean_BCHV)
        return torch.cat(found, 1).to(v_BTHV.dtype), carried_BHV

    def state_specs(self) -> tuple[StateSpec, ...]:
        return (StateSpec("mean", (self.config.heads, self.config.head_size), "float32"),)

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> State:
        wide = torch.promote_types(torch.get_default_dtype() if dtype is None else dtype, torch.float32)
        shape = batch, self.config.heads, self.config.head_size
        return {"mean": torch.zeros(shape, dtype=wide, device=device)}

    def output_parameters(self) -> frozenset[str]:
        return frozenset({"out.weight"})

    @staticmethod
    def cost(config: Any, d_model: int, shape: Shape, depths: int = 1, parts: Parts | None = None) -> Cost:
        """Written: the value's projection and the average. Read: the gate's and the output's projection.

        In training and prefill the average is a product inside chunks, half of it counted as work; a decoded token takes
        one multiply-add a channel.
        """
        W, D = config.width, d_model
        if shape.phase == "decode":
            seen = issued = 1.0
        else:
            seen, issued = _seen(shape.tokens), _issued(shape.tokens)
        state_bytes = W * shape.wide_bytes
        kept = float(shape.wide_bytes * (W + config.heads * issued) + shape.dtype_bytes * D)
        write = Work.product(
            2.0 * D * W + 2.0 * seen * W,
            2.0 * D * W + 2.0 * issued * W,
            weights=D * W + config.heads,
            state_traffic_bytes=2.0 * state_bytes,
            kept_bytes=kept,
        )
        read = Work.product(4.0 * D * W, weights=2 * D * W, kept_bytes=4.0 * W * shape.dtype_bytes)
        parameters = 3 * D * W + config.heads
        return Cost(write, (read,), parameters, parameters, state_bytes, small_parameters=config.heads)


def _chunk(
    fed_BCHV: Tensor, log_decay_H: Tensor, reset_BC: Tensor, valid_BC: Tensor, carried_BHV: Tensor
) -> tuple[Tensor, Tensor]:
    """Averages of a chunk, and the last one of each row; a row without a valid token keeps what it carried."""
    C = fed_BCHV.shape[1]
    at_C = torch.arange(C, device=fed_BCHV.device)
    document_BC = reset_BC.cumsum(1)
    together_BCC = document_BC[:, :, None] == document_BC[:, None, :]
    distance_CC = at_C[:, None] - at_C[None, :]
    decay_HCC = torch.exp(log_decay_H[:, None, None] * distance_CC.clamp_min(0))
    weight_BHCC = decay_HCC * (together_BCC & (distance_CC >= 0))[:, None]
    # A product even for one token, so that what is issued is the same in every version of torch.
    mean_BCHV = (weight_BHCC @ fed_BCHV.transpose(1, 2)).transpose(1, 2)
    fade_CH = torch.exp(log_decay_H * (at_C[:, None] + 1))
    goes_on_BC = (document_BC == 0).to(fade_CH)
    mean_BCHV = mean_BCHV + (goes_on_BC[:, :, None] * fade_CH)[..., None] * carried_BHV[:, None]
    count_B = valid_BC.sum(1)
    last_BHV = mean_BCHV[torch.arange(len(count_B), device=count_B.device), (count_B - 1).clamp_min(0)]
    return mean_BCHV, torch.where((count_B > 0)[:, None, None], last_BHV, carried_BHV)


def _seen(tokens: int) -> float:
    """Positions of its own chunk that a token sees, itself included: the mean over a sequence."""
    whole, rest = divmod(tokens, CHUNK)
    return (whole * CHUNK * (CHUNK + 1) + rest * (rest + 1)) / 2 / tokens


def _issued(tokens: int) -> float:
    """Positions of its chunk that a token is multiplied with: the mean over a sequence."""
    whole, rest = divmod(tokens, CHUNK)
    return (whole * CHUNK * CHUNK + rest * rest) / tokens
