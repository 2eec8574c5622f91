"""Mamba-2's recurrence as a reader (Dao and Gu, 2024): S_t = a_t S_{t-1} + k_t^T (dt_t v_t), o_t = q_t S_t + D v_t."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import HeadShape, Reader, ReaderBuild, State, StateSpec
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops import one_token
from crossbreed.core.ops.fused import ssd_fla, ssd_mamba
from crossbreed.core.ops.ssd import ssd
from crossbreed.plugins.mixers import backends
from crossbreed.plugins.mixers.accounting import chunk_issued, input_kept, mean_in_chunk
from crossbreed.plugins.mixers.configs import DecaySettings, SsdSettings
from crossbreed.plugins.mixers.reading import (
    Chosen,
    chosen,
    inverse_softplus,
    masked,
    read_mask,
    spread,
    starts,
    traced,
)

CHUNK = 32
"""Chunk of the reference path, the fastest on a CPU; the ledger's own chunk is 64 whatever the path does."""
SMALLEST_STEP = 1e-4
"""Initial time steps are at least this, as in Mamba-2."""
INIT_STD = 0.02


class SsdReader(Reader, nn.Module):
    """Scalar decay per head: dt = softplus(x W + dt_bias), a = exp(-exp(A_log) dt); the state is fp32 at least."""

    def __init__(self, config: SsdSettings, build: ReaderBuild) -> None:
        super().__init__()
        H = build.heads.heads
        self.config, self.heads, self.requested = config, build.heads, build.backend
        self.dt_proj = nn.Linear(build.d_model, H, bias=False)
        nn.init.normal_(self.dt_proj.weight, std=INIT_STD)
        self.A_log, self.dt_bias = initial_decays(config, H)
        self.D_H = nn.Parameter(torch.ones(H)) if config.skip else None

    def forward(
        self,
        q_BTHK: Tensor,
        k_BTGK: Tensor,
        v_BTHV: Tensor,
        x_BTD: Tensor,
        context: Context,
        state: State | None,
        read_BT: Tensor | None = None,
    ) -> tuple[Tensor, State | None]:
        read_BT = read_mask(read_BT, context)
        if context.recorded and state is not None:
            o_B1HV, S_BHKV = one_token.recurrence(
                q_BTHK,
                k_BTGK,
                v_BTHV,
                x_BTD,
                self.dt_proj.weight,
                self.A_log,
                self.dt_bias,
                state["S"],
                **recorded_masks(self.config, context, read_BT),
                skip_H=self.D_H,
            )
            return o_B1HV, {"S": S_BHKV}
        v_BTHV = spread(v_BTHV, self.heads.heads)
        wide = torch.promote_types(v_BTHV.dtype, torch.float32)
        dt_BTH = F.softplus(self.dt_proj(x_BTD).to(wide) + self.dt_bias.to(wide))
        # Without a step a token neither writes nor lets the state decay.
        dt_BTH = masked(dt_BTH, traced(self.config, read_BT))
        rate_H = -self.A_log.to(wide).exp()
        log_decay_BTH = dt_BTH * rate_H
        old_BHKV, reset_BT = starts(context, None if state is None else state["S"])
        if old_BHKV is not None and context.phase == "decode":
            if reset_BT is not None:
                old_BHKV = old_BHKV.masked_fill(reset_BT[:, 0, None, None, None], 0.0)
            o_BTHV, S_BHKV = self._step(
                q_BTHK, k_BTGK, v_BTHV, dt_BTH, log_decay_BTH, old_BHKV, context, read_BT
            )
        else:
            given: dict[str, Any] = {
                "step_BTH": dt_BTH,
                "skip_H": self.D_H,
                "state_BHKV": old_BHKV,
                "valid_BT": context.valid_BT,
                "reset_BT": reset_BT,
            }
            kernel = self.serving(v_BTHV.device, v_BTHV.dtype)
            if kernel == "reference":
                o_BTHV, S_BHKV = ssd(q_BTHK, k_BTGK, v_BTHV, log_decay_BTH, chunk=CHUNK, **given)
            elif kernel == "fla":
                H = self.heads.heads
                o_BTHV, S_BHKV = ssd_fla(spread(q_BTHK, H), spread(k_BTGK, H), v_BTHV, log_decay_BTH, **given)
            else:
                groups = math.lcm(self.heads.query_heads, self.heads.key_heads)
                q_BTHK, k_BTGK = spread(q_BTHK, groups), spread(k_BTGK, groups)
                o_BTHV, S_BHKV = ssd_mamba(q_BTHK, k_BTGK, v_BTHV, rate_H, **given)
        return masked(o_BTHV.to(v_BTHV.dtype), read_BT), None if state is None else {"S": S_BHKV}

    def _step(
        self,
        q_B1QK: Tensor,
        k_B1GK: Tensor,
        v_B1HV: Tensor,
        dt_B1H: Tensor,
        log_decay_B1H: Tensor,
        old_BHKV: Tensor,
        context: Context,
        read_BT: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """One decoded token: every row writes, only rows that read are read."""
        dtype, H = old_BHKV.dtype, self.heads.heads
        with torch.autocast(old_BHKV.device.type, enabled=False):
            k_BHK1 = spread(k_B1GK, H).to(dtype)[:, 0].unsqueeze(-1)
            wide_B1HV = v_B1HV.to(dtype)
            write_BH1V = (wide_B1HV * dt_B1H.to(dtype).unsqueeze(-1)).transpose(1, 2)
            decay_BH11 = log_decay_B1H.to(dtype).exp()[:, 0, :, None, None]
            new_BHKV = step_write(old_BHKV * decay_BH11, k_BHK1, write_BH1V)
            if context.valid_BT is not None:
                new_BHKV = torch.where(context.valid_BT[:, 0, None, None, None], new_BHKV, old_BHKV)
            o_B1HV = step_read(spread(q_B1QK, H), new_BHKV, chosen(read_BT, context))
            if self.D_H is not None:
                o_B1HV = torch.addcmul(o_B1HV, wide_B1HV, self.D_H.to(dtype)[:, None])
            return o_B1HV, new_BHKV

    def serving(self, device: torch.device, dtype: torch.dtype) -> str:
        """The implementation that serves pieces of this dtype on this device; a decoded token has the reference's step."""
        sizes = (self.heads.key_size, self.heads.value_size)
        return backends.serving(self.requested, backends.SSD, device, dtype, sizes)

    def state_specs(self) -> tuple[StateSpec, ...]:
        return recurrent_specs(self.heads)

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> State:
        return recurrent_state(batch, self.heads, dtype, device)

    def no_weight_decay(self) -> frozenset[str]:
        return frozenset({"A_log", "dt_bias"} if self.D_H is None else {"A_log", "dt_bias", "D_H"})

    @staticmethod
    def cost(config: SsdSettings, heads: HeadShape, d_model: int, shape: Shape, depths: int = 1) -> Cost:
        """Time-step projection and state update (write); one step reads by state times query.

        In chunk form scores and values inside the chunk and the state times the queries are computed for all tokens
        together, so they are written too. Scores are computed once for heads that share both query and key.
        """
        H, K, V = heads.heads, heads.key_size, heads.value_size
        shared = math.lcm(heads.query_heads, heads.key_heads)
        parameters = d_model * H + H * (3 if config.skip else 2)
        state_bytes = H * K * V * shape.wide_bytes
        project, state = 2.0 * d_model * H, 2.0 * H * K * V
        pair = 2.0 * (shared * K + H * V)
        # A step reads and writes the whole state, whoever reads.
        write = Work.product(project + state, weights=parameters, state_traffic_bytes=2 * state_bytes)
        read = Work.product(state)
        if shape.phase != "decode":
            size, padding = chunk_issued(shape.tokens, CHUNK)
            kept = _kept(heads, d_model, shape) if shape.phase == "train" else 0.0
            write = Work.product(
                project + state, project + state * padding, weights=parameters, kept_bytes=kept
            )
            seen = pair * mean_in_chunk(shape.tokens) + state
            issued = (pair * size + state) * padding
            # Beside two products for each forward one, the backward pass sums decays against the steps.
            write = write.plus(Work(seen, 3 * seen, issued, 3 * issued + 2 * H * size * padding))
            read = Work()
        return Cost(write, (read,), parameters, parameters, state_bytes)


def _kept(heads: HeadShape, d_model: int, shape: Shape) -> float:
    """What the chunked reference keeps of one token (``core.ops.ssd``): the tensors it saves, each by its own size."""
    H, K, V = heads.heads, heads.key_size, heads.value_size
    shared = math.lcm(heads.query_heads, heads.key_heads)
    C, padding = chunk_issued(shape.tokens, CHUNK)
    cast = shape.dtype_bytes < shape.wide_bytes
    # One group of queries and keys stays a view of all written channels; several, or cast ones, are copies.
    views = 2 * K + H * V if shared == 1 and not cast else 2 * shared * K * padding
    chunked = shared * C + H * C + 2 * H + H / C + H * (C + K) + H * K + H * (1 + K / C) * V
    state_after = H * (C + K) * V / shape.tokens
    numbers = views + chunked * padding + state_after + 2 * H
    return numbers * shape.wide_bytes + (input_kept(d_model, 1, shape) if cast else 0.0)


def initial_decays(config: DecaySettings, heads: int) -> tuple[nn.Parameter, nn.Parameter]:
    """(A_log, dt_bias): A uniform in [a_min, a_max]; softplus(dt_bias) log-uniform in [dt_min, dt_max]."""
    a_H = torch.empty(heads).uniform_(config.a_min, config.a_max)
    low, high = math.log(config.dt_min), math.log(config.dt_max)
    dt_H = torch.empty(heads).uniform_(low, high).exp().clamp(min=SMALLEST_STEP)
    return nn.Parameter(a_H.log()), nn.Parameter(inverse_softplus(dt_H))


def recorded_masks(config: DecaySettings, context: Context, read_B1: Tensor | None) -> dict[str, Any]:
    """Where one recorded token of each row stands, whether it is read, and whether it leaves a trace."""
    trace_B1 = traced(config, read_B1)
    return {
        "position_B": context.positions_BT[:, 0],
        "read_B": None if read_B1 is None else read_B1[:, 0],
        "trace_B": None if trace_B1 is None else trace_B1[:, 0],
    }


def recurrent_specs(heads: HeadShape) -> tuple[StateSpec, ...]:
    """One matrix a head; fp32, float64 beside float64 activations."""
    return (StateSpec("S", (heads.heads, heads.key_size, heads.value_size), "float32"),)


def recurrent_state(
    batch: int, heads: HeadShape, dtype: torch.dtype | None, device: torch.device | str | None
) -> State:
    wide = torch.promote_types(torch.get_default_dtype() if dtype is None else dtype, torch.float32)
    return {"S": torch.zeros(batch, heads.heads, heads.key_size, heads.value_size, dtype=wide, device=device)}


def step_write(old_BHKV: Tensor, k_BHK1: Tensor, v_BH1V: Tensor) -> Tensor:
    """old + k^T v."""
    return torch.baddbmm(old_BHKV.flatten(0, 1), k_BHK1.flatten(0, 1), v_BH1V.flatten(0, 1)).view_as(old_BHKV)


def step_read(q_B1HK: Tensor, state_BHKV: Tensor, some: Chosen | None) -> Tensor:
    """o_B1HV = q S for the chosen rows (None: all), zero elsewhere; in the state's dtype."""
    if some is not None:
        rows_N = some.index_N
        return some.scatter(step_read(q_B1HK[rows_N], state_BHKV[rows_N], None).transpose(0, 1))
    q_BH1K = q_B1HK.to(state_BHKV.dtype).transpose(1, 2)
    return (q_BH1K @ state_BHKV).transpose(1, 2)
