"""The gated feed-forward layer (Shazeer, 2020, eq. 6, without biases)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import Mixer, MixerBuild, State
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops import one_token
from crossbreed.core.ops.gated import silu_times
from crossbreed.core.ops.one_token import Normed
from crossbreed.plugins.mixers.accounting import input_kept
from crossbreed.plugins.mixers.backends import check_backend
from crossbreed.plugins.mixers.configs import SwiGLUConfig
from crossbreed.plugins.mixers.reading import read_mask

INIT_STD = 0.02


class SwiGLU(Mixer, nn.Module):
    """y = W_down(SiLU(W_gate x) * W_up x). Tokens that are not read are not computed, in every phase."""

    def __init__(self, config: SwiGLUConfig, build: MixerBuild) -> None:
        super().__init__()
        check_backend("swiglu", build.backend)
        self.config = config
        self.gate_up = nn.Linear(build.d_model, 2 * config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, build.d_model, bias=False)
        for linear in (self.gate_up, self.down):
            nn.init.normal_(linear.weight, std=INIT_STD)

    def forward(
        self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        read_BT = read_mask(read_BT, context)
        if context.recorded:
            return self._one(x_BTD, None, read_BT), state
        if read_BT is None:
            return self._mix(x_BTD), state
        y_BTD = torch.zeros_like(x_BTD)
        y_BTD[read_BT] = self._mix(x_BTD[read_BT]).to(y_BTD.dtype)
        return y_BTD, state

    def onto(
        self, stream: Normed, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        return self._one(stream, stream.h, read_mask(read_BT, context)), state

    def _one(self, x_B1D: Tensor | Normed, onto_B1D: Tensor | None, read_B1: Tensor | None) -> Tensor:
        """One recorded token a row, added to ``onto_B1D``."""
        read_B = None if read_B1 is None else read_B1[:, 0]
        both_B1F = one_token.linear(x_B1D, self.gate_up.weight, read_B)
        return one_token.linear(both_B1F, self.down.weight, read_B, gated=True, clear=True, onto_B1O=onto_B1D)

    def _mix(self, x: Tensor) -> Tensor:
        return self.down(silu_times(self.gate_up(x)))  # type: ignore[no-any-return]

    def output_parameters(self) -> frozenset[str]:
        return frozenset({"down.weight"})

    @staticmethod
    def cost(config: Any, d_model: int, shape: Shape, depths: int = 1, parts: Parts | None = None) -> Cost:
        """Three products, all read. Kept: the input, gate and up, SiLU of the gate, and its product with up."""
        parameters = 3 * d_model * config.hidden
        kept = input_kept(d_model, 1, shape) + 4 * config.hidden * shape.dtype_bytes
        read = Work.product(2.0 * parameters, weights=parameters, kept_bytes=kept)
        return Cost(reads=(read,), parameters=parameters, active_parameters=parameters)
