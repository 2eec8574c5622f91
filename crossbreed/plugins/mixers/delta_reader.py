"""The gated delta rule as a reader (Yang et al., 2024): S_t = a_t (I - b_t k_t^T k_t) S_{t-1} + b_t k_t^T v_t."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import HeadShape, Reader, ReaderBuild, State, StateSpec
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops import one_token
from crossbreed.core.ops.delta_rule import gated_delta_rule
from crossbreed.core.ops.fused import delta_rule_fla
from crossbreed.core.ops.norm import l2_norm
from crossbreed.plugins.mixers import backends
from crossbreed.plugins.mixers.accounting import chunk_issued, input_kept, mean_in_chunk
from crossbreed.plugins.mixers.configs import DeltaSettings
from crossbreed.plugins.mixers.reading import chosen, masked, read_mask, spread, starts, traced
from crossbreed.plugins.mixers.ssd_reader import (
    INIT_STD,
    initial_decays,
    recorded_masks,
    recurrent_specs,
    recurrent_state,
    step_read,
    step_write,
)

CHUNK = 32
"""Chunk of the reference path."""


class DeltaReader(Reader, nn.Module):
    """Decay and write strength per head from x: log a = -exp(A_log) softplus(x W_a + dt_bias), b = sigmoid(x W_b),
    twice that with negative eigenvalues (Grazzi et al., 2024).

    Queries are scaled by 1/sqrt(K). The state is fp32 at least.
    """

    def __init__(self, config: DeltaSettings, build: ReaderBuild) -> None:
        super().__init__()
        H = build.heads.heads
        self.config, self.heads, self.requested = config, build.heads, build.backend
        self.ab_proj = nn.Linear(build.d_model, 2 * H, bias=False)
        nn.init.normal_(self.ab_proj.weight, std=INIT_STD)
        self.A_log, self.dt_bias = initial_decays(config, H)

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
            most = 2.0 if self.config.negative_eigenvalues else 1.0
            o_B1HV, S_BHKV = one_token.recurrence(
                q_BTHK,
                k_BTGK,
                v_BTHV,
                x_BTD,
                self.ab_proj.weight,
                self.A_log,
                self.dt_bias,
                state["S"],
                **recorded_masks(self.config, context, read_BT),
                normalise=self.config.qk_l2_norm,
                most=most,
                scale=self.heads.key_size**-0.5,
            )
            return o_B1HV, {"S": S_BHKV}
        H = self.heads.heads
        v_BTHV = spread(v_BTHV, H)
        wide = torch.promote_types(v_BTHV.dtype, torch.float32)
        a_BTH, b_BTH = self.ab_proj(x_BTD).to(wide).chunk(2, -1)
        log_decay_BTH = F.softplus(a_BTH + self.dt_bias.to(wide)) * -self.A_log.to(wide).exp()
        beta_BTH = b_BTH.sigmoid() * (2.0 if self.config.negative_eigenvalues else 1.0)
        trace_BT = traced(self.config, read_BT)
        log_decay_BTH, beta_BTH = masked(log_decay_BTH, trace_BT), masked(beta_BTH, trace_BT)
        old_BHKV, reset_BT = starts(context, None if state is None else state["S"])
        fused = context.phase != "decode" and self.serving(v_BTHV.device, v_BTHV.dtype) == "fla"
        if self.config.qk_l2_norm and not fused:
            q_BTHK, k_BTGK = l2_norm(q_BTHK), l2_norm(k_BTGK)
        if not fused or self.heads.query_heads != self.heads.key_heads:
            q_BTHK, k_BTGK = spread(q_BTHK, H), spread(k_BTGK, H)
        written = q_BTHK, k_BTGK, v_BTHV, log_decay_BTH, beta_BTH
        if old_BHKV is not None and context.phase == "decode":
            if reset_BT is not None:
                old_BHKV = old_BHKV.masked_fill(reset_BT[:, 0, None, None, None], 0.0)
            o_BTHV, S_BHKV = self._step(*written, old_BHKV, context, read_BT)
        else:
            begin: dict[str, Any] = {
                "state_BHKV": old_BHKV,
                "valid_BT": context.valid_BT,
                "reset_BT": reset_BT,
            }
            if fused:
                o_BTHV, S_BHKV = delta_rule_fla(*written, normalise=self.config.qk_l2_norm, **begin)
            else:
                o_BTHV, S_BHKV = gated_delta_rule(*written, chunk=CHUNK, **begin)
        return masked(o_BTHV.to(v_BTHV.dtype), read_BT), None if state is None else {"S": S_BHKV}

    def _step(
        self,
        q_B1HK: Tensor,
        k_B1HK: Tensor,
        v_B1HV: Tensor,
        log_decay_B1H: Tensor,
        beta_B1H: Tensor,
        old_BHKV: Tensor,
        context: Context,
        read_BT: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """One decoded token: every row writes, only rows that read are read."""
        dtype = old_BHKV.dtype
        with torch.autocast(old_BHKV.device.type, enabled=False):
            k_BH1K = k_B1HK.to(dtype).transpose(1, 2)
            decayed_BHKV = old_BHKV * log_decay_B1H.to(dtype).exp()[:, 0, :, None, None]
            y_BH1V = v_B1HV.to(dtype).transpose(1, 2) - k_BH1K @ decayed_BHKV
            write_BHK1 = (k_BH1K * beta_B1H.to(dtype)[:, 0, :, None, None]).mT
            new_BHKV = step_write(decayed_BHKV, write_BHK1, y_BH1V)
            if context.valid_BT is not None:
                new_BHKV = torch.where(context.valid_BT[:, 0, None, None, None], new_BHKV, old_BHKV)
            o_B1HV = step_read(q_B1HK * self.heads.key_size**-0.5, new_BHKV, chosen(read_BT, context))
            return o_B1HV, new_BHKV

    def serving(self, device: torch.device, dtype: torch.dtype) -> str:
        """The implementation that serves pieces of this dtype on this device; a decoded token has the reference's step."""
        sizes = (self.heads.key_size, self.heads.value_size)
        return backends.serving(self.requested, backends.DELTA, device, dtype, sizes)

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
        return frozenset({"A_log", "dt_bias"})

    @staticmethod
    def cost(config: DeltaSettings, heads: HeadShape, d_model: int, shape: Shape, depths: int = 1) -> Cost:
        """Gate projections, the triangular system of the chunk and the state update (write); one step reads by a product.

        Algorithmic, per head in chunk form with m keys seen and m-1 earlier ones: key products 2K(m-1), solving for the
        written values and the keys that read the old state 2(K+V)(m-1), old values 2KV, state update 2KV; the queries,
        stacked over the keys and so computed for all tokens, 2(K+V)m + 2KV. One step: 4KV written and 2KV read.
        """
        H, K, V = heads.heads, heads.key_size, heads.value_size
        parameters = 2 * d_model * H + 2 * H
        state_bytes = H * K * V * shape.wide_bytes
        project, state = 4.0 * d_model * H, 2.0 * H * K * V
        # A step reads and writes the whole state, whoever reads.
        write = Work.product(project + 2 * state, weights=parameters, state_traffic_bytes=2 * state_bytes)
        read = Work.product(state)
        if shape.phase != "decode":
            seen = mean_in_chunk(shape.tokens)
            written = project + 2 * H * (2 * K + V) * (seen - 1) + 2 * state
            issued_write, issued_read = _issued(heads, shape.tokens)
            write = Work(
                written,
                3 * written,
                project + issued_write[0],
                3 * project + issued_write[0] + issued_write[1],
                weights=parameters,
                kept_bytes=_kept(config, heads, d_model, shape) if shape.phase == "train" else 0.0,
            )
            was_read = 2 * H * (K + V) * seen + state
            queries = Work(was_read, 3 * was_read, issued_read[0], issued_read[0] + issued_read[1])
            write, read = write.plus(queries), Work()
        return Cost(write, (read,), parameters, parameters, state_bytes)


def _kept(config: DeltaSettings, heads: HeadShape, d_model: int, shape: Shape) -> float:
    """What the chunked reference keeps of one token (``core.ops.delta_rule``): the tensors it saves, each by its size."""
    H, K, V = heads.heads, heads.key_size, heads.value_size
    C, padding = chunk_issued(shape.tokens, CHUNK)
    cast = shape.dtype_bytes < shape.wide_bytes
    normed = 0
    if config.qk_l2_norm:
        # The norms keep what they saw: views of all written channels, or cast copies of queries and keys.
        widths = (heads.query_heads + heads.key_heads) * K
        normed = widths + (0 if cast else heads.value_heads * V) + heads.query_heads + heads.key_heads
    chunked = 3 * H * K + 3 * H + 4 * H * C + H * (K + V) + H * K * (K + V) / C + H * V
    gates = 4 * H
    state_after = H * K * V / shape.tokens
    numbers = normed + chunked * padding + state_after + gates
    return numbers * shape.wide_bytes + (input_kept(d_model, 1, shape) if cast else 0.0)


def _issued(heads: HeadShape, tokens: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """(forward, backward) FLOPs a token that the chunked reference issues: for writing, and for reading.

    Queries are stacked over keys, so half of the stacked products is reading. A triangular solve of C columns counts
    C^2 a token.
    """
    H, K, V = heads.heads, heads.key_size, heads.value_size
    C, padding = chunk_issued(tokens, CHUNK)
    scan = 2 * K * K * V / C
    write_forward = 2 * C * K + C * C + 2 * C * (K + V) + 2 * K * (K + V) + scan + 2 * K * V
    write_backward = (
        2 * K * V + scan + 2 * K * V + 2 * C * V + 2 * C * V + 2 * K * V + 2 * C * K + 2 * K * V + 2 * C * K
    )
    read_forward = 2 * C * K + 2 * K * V + 2 * C * V
    read_backward = 2 * C * V + 2 * K * V + 2 * C * V + 2 * K * V + 2 * C * K + 2 * C * K
    scale = H * padding
    return (write_forward * scale, write_backward * scale), (read_forward * scale, read_backward * scale)
