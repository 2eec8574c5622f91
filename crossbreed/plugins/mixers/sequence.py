"""Sequence and depth mixers: attention, Mamba-2, Gated DeltaNet, the multi-mixer and depth attention are one class with
different plans.

Legend: H output heads, Q query heads, G key or value heads, K key size, V value size, C projected channels, N readers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import Mixer, MixerBuild, ReaderBuild, State, StateSpec
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.errors import ConfigError
from crossbreed.core.ledger import Cost, Shape, Work
from crossbreed.core.ops import one_token
from crossbreed.core.ops.gated import silu_times
from crossbreed.core.ops.norm import gated_rms_norm, rms_norm
from crossbreed.core.ops.one_token import Normed
from crossbreed.core.ops.rotary import rotary
from crossbreed.core.ops.short_conv import short_conv
from crossbreed.plugins.mixers.backends import check_backend
from crossbreed.plugins.mixers.configs import Activation, Config
from crossbreed.plugins.mixers.plan import Plan, ReaderPart, plan
from crossbreed.plugins.mixers.projections import (
    Projected,
    Projections,
    TokenProjected,
    build_projections,
    toll,
)
from crossbreed.plugins.mixers.reading import (
    Chosen,
    chosen,
    embedded,
    masked,
    read_mask,
    starts,
)


class SequenceMixer(Mixer, nn.Module):
    """Projections, an optional short convolution, readers, an optional gate and norm, the output projection.

    Source: Oryx (arXiv 2605.28769, section 3 and appendix B) for several readers; with one, Llama's attention, Mamba-2
    (Dao and Gu, 2024) or Gated DeltaNet (Yang et al., 2024), by the config's class.

    With several readers ``context.mode`` says who reads each token. Soft weights in training run and weight all of them.
    State tensors are named ``conv`` and ``<reader>.<name>``. Raises ConfigError for several readers without a mode.
    """

    def __init__(self, config: Config, build: MixerBuild) -> None:
        super().__init__()
        self.config, self.plan = config, plan(config, build.parts)
        p = self.plan
        fused = dict.fromkeys(name for part in p.readers for name in part.fused)
        check_backend("/".join(part.name for part in p.readers), build.backend, tuple(fused))
        self.projections = build_projections(p, build.d_model, build.depths)
        self.conv_CW: nn.Parameter | None = None
        self.conv_bias_C: nn.Parameter | None = None
        if p.conv is not None:
            bound = p.conv.width**-0.5
            self.conv_CW = nn.Parameter(torch.empty(p.written_width, p.conv.width).uniform_(-bound, bound))
            self.conv_bias_C = nn.Parameter(torch.zeros(p.written_width)) if p.conv.bias else None
        self.norm_weight = nn.Parameter(torch.ones(p.norm_width)) if p.norm_width else None
        self.readers = nn.ModuleList(
            part.load()(
                part.config,
                ReaderBuild(build.d_model, p.heads, part.backend_for(build.backend), build.depths),
            )
            for part in p.readers
        )

    @property
    def backend(self) -> str:
        """What its readers compute with where its weights are, in the dtype of activations there (autocast counts)."""
        weight = next(self.projections.parameters())
        device, dtype = weight.device, weight.dtype
        if torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
        names = (reader.serving(device, dtype) for reader in self.readers)  # type: ignore[operator]
        return "+".join(dict.fromkeys(names))

    def forward(
        self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        read_BT = read_mask(read_BT, context)
        return self._mixed(self.projections(x_BTD, context, read_BT), context, state, read_BT)

    def onto(
        self, stream: Normed, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        if not isinstance(self.projections, Projections):
            return super().onto(stream, context, state, read_BT)
        read_BT = read_mask(read_BT, context)
        projected = TokenProjected(self.projections, stream, read_BT)
        return self._mixed(projected, context, state, read_BT)

    def _mixed(
        self, projected: Projected, context: Context, state: State | None, read_BT: Tensor | None
    ) -> tuple[Tensor, State | None]:
        """What the mixer makes of a piece that is projected, and its state after it."""
        x_BTD = projected.x_BTD
        reads, weight_BTN = self._who_reads(context, read_BT)
        source_BTD = x_BTD if self.plan.kv_from == "stream" else embedded(context)
        written_BTC, tail = self._convolved(projected.written(source_BTD), context, state)
        # A recorded token's convolution has its activation in it.
        bare = not (context.recorded and tail is not None and self.plan.one_activation)
        streams, queries = self._split(written_BTC, bare)
        some = [chosen(mask, context) for mask in reads]
        # Where every token is computed for every reader, queries and gate are one product.
        at_once = projected.read() if all(tokens is None for tokens in some) else []
        queries = queries or at_once
        turned: dict[int, Tensor] = {}
        after: State = {} if tail is None else {"conv": tail}
        total_BTHV: Tensor | None = None
        for i, (reader, part) in enumerate(zip(self.readers, self.plan.readers, strict=True)):
            own = None if state is None else _own(state, i)
            q_BTC = queries[part.queries] if queries else None
            activation = part.q_activation if bare or not self.plan.queries_convolved else "none"
            q_BTQK = self._query(part, activation, projected, q_BTC, some[i], context.positions_BT)
            k_BTGK, v_BTGV = streams[part.kv]
            if part.rotated:
                if part.kv not in turned:
                    turned[part.kv] = self._turn(k_BTGK, context.positions_BT)
                k_BTGK = turned[part.kv]
            o_BTHV, new = reader(q_BTQK, k_BTGK, v_BTGV, x_BTD, context, own, reads[i])
            after |= {f"{i}.{name}": tensor for name, tensor in (new or {}).items()}
            if weight_BTN is not None:
                o_BTHV = o_BTHV * weight_BTN[..., i, None, None].to(o_BTHV.dtype)
            total_BTHV = o_BTHV if total_BTHV is None else total_BTHV + o_BTHV
        assert total_BTHV is not None
        gate_BTC = at_once[-1] if at_once and self.plan.gate else None
        any_reader = some[0] if len(some) == 1 else chosen(read_BT, context)
        if context.recorded:
            # What is not read is zero already.
            y_BTD = self._out(total_BTHV, projected, gate_BTC, recorded=True)
        elif any_reader is None:
            y_BTD = masked(self._out(total_BTHV, projected, gate_BTC), read_BT)
        else:
            y_BTD = self._some_out(total_BTHV, projected, any_reader)
        return y_BTD, None if state is None else after

    def _who_reads(
        self, context: Context, read_BT: Tensor | None
    ) -> tuple[list[Tensor | None], Tensor | None]:
        """Each reader's mask (None: everything), and the soft weights where training uses them."""
        count = len(self.readers)
        if count == 1:
            return [read_BT], None
        if context.mode is None:
            names = ", ".join(part.name for part in self.plan.readers)
            raise ConfigError(
                f"a multi_mixer with {count} readers ({names}) needs a mode for every token, but context.mode is None; "
                "give the architecture a mode_router or force the site 'mode'"
            )
        weight_BTN = context.mode.weight_BTN
        if weight_BTN is not None and weight_BTN.shape[-1] != count:
            raise ConfigError(
                f"the mode has {weight_BTN.shape[-1]} choices, but this multi_mixer has {count} readers; they must agree"
            )
        if weight_BTN is not None and context.training:
            return [read_BT] * count, weight_BTN
        modes = [context.mode.choice_BT == i for i in range(count)]
        return [mask if read_BT is None else mask & read_BT for mask in modes], None

    def _convolved(
        self, written_BTC: Tensor, context: Context, state: State | None
    ) -> tuple[Tensor, Tensor | None]:
        if self.conv_CW is None:
            return written_BTC, None
        if context.recorded and state is not None:
            silu = self.plan.one_activation and self.plan.kv_activation == "silu"
            given = written_BTC, self.conv_CW, self.conv_bias_C, state["conv"]
            return one_token.convolution(*given, position_B=context.positions_BT[:, 0], silu=silu)
        tail, reset_BT = starts(context, None if state is None else state["conv"])
        y_BTC, tail = short_conv(
            written_BTC,
            self.conv_CW.to(written_BTC.dtype),
            None if self.conv_bias_C is None else self.conv_bias_C.to(written_BTC.dtype),
            tail_BWC=tail,
            valid_BT=context.valid_BT,
            reset_BT=reset_BT,
        )
        return y_BTC, tail

    def _split(self, written_BTC: Tensor, bare: bool) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
        """Activated keys and values of each stream, and the channels of queries that are convolved."""
        p = self.plan
        kv_BTC, q_BTC = written_BTC.tensor_split([p.kv_width], -1)
        k_and_v = activated(kv_BTC, p.kv_activation if bare else "none").split(
            [p.key_width, p.value_width] * p.kv_streams, -1
        )
        streams = [
            (by_head(k_BTC, p.heads.key_heads), by_head(v_BTC, p.heads.value_heads))
            for k_BTC, v_BTC in zip(k_and_v[::2], k_and_v[1::2], strict=True)
        ]
        return streams, list(q_BTC.split(p.query_width, -1)) if p.queries_convolved else []

    def _query(
        self,
        part: ReaderPart,
        activation: Activation,
        projected: Projected,
        q_BTC: Tensor | None,
        some: Chosen | None,
        positions_BT: Tensor,
    ) -> Tensor:
        """A reader's queries, activated and rotated; those not projected yet only of the tokens it reads, else zero."""
        heads = self.plan.heads
        if q_BTC is None and some is not None:
            if not len(some):
                return projected.x_BTD.new_zeros(*positions_BT.shape, heads.query_heads, heads.key_size)
            few = self._query(part, activation, projected.some(some), None, None, some.gather(positions_BT))
            return some.scatter(few)
        if q_BTC is None:
            q_BTC = projected.query(part.queries)
        q_BTQK = by_head(activated(q_BTC, activation), heads.query_heads)
        return self._turn(q_BTQK, positions_BT) if part.rotated else q_BTQK

    def _turn(self, x_BTGK: Tensor, positions_BT: Tensor) -> Tensor:
        assert self.plan.rotary is not None
        return rotary(x_BTGK, positions_BT, *self.plan.rotary)

    def _some_out(self, o_BTHV: Tensor, projected: Projected, some: Chosen) -> Tensor:
        """The output of the chosen tokens, zero elsewhere."""
        if not len(some):
            return torch.zeros_like(projected.x_BTD)
        return some.scatter(self._out(some.gather(o_BTHV), projected.some(some), None))

    def _out(
        self, o_BTHV: Tensor, projected: Projected, gate_BTC: Tensor | None, recorded: bool = False
    ) -> Tensor:
        """Gate, norm and output matrix."""
        p = self.plan
        if p.gate and gate_BTC is None:
            gate_BTC = projected.gate()
        return projected.output(self._finished(o_BTHV, gate_BTC, recorded))

    def _finished(self, o_BTHV: Tensor, gate_BTC: Tensor | None, recorded: bool) -> Tensor | Normed:
        """BTC: the output of all heads, gated and normalised, which the product may do that follows a recorded token."""
        p = self.plan
        gate, o = gate_BTC, o_BTHV.flatten(-2)
        if p.norm == "head":
            o, gate = o_BTHV, None if gate is None else by_head(gate, p.heads.heads)
        # The last dimension is what one norm covers.
        if self.norm_weight is not None and gate is not None:
            first = p.norm_place == "after_gate"
            if recorded:
                return Normed(o, self.norm_weight, p.norm_eps, gate, first)
            o = gated_rms_norm(o, gate, self.norm_weight, p.norm_eps, gate_first=first)
        elif self.norm_weight is not None:
            o = rms_norm(o, self.norm_weight.to(o.dtype), p.norm_eps)
        elif gate is not None:
            o = silu_times(gate, o)
        return o.flatten(-2) if p.norm == "head" else o

    def state_specs(self) -> tuple[StateSpec, ...]:
        p, specs = self.plan, []
        if p.conv is not None:
            specs.append(StateSpec("conv", (p.conv.width - 1, p.written_width)))
        for i, reader in enumerate(self.readers):
            for spec in reader.state_specs():  # type: ignore[operator]
                specs.append(StateSpec(f"{i}.{spec.name}", spec.shape, spec.dtype, spec.scope))
        return tuple(specs)

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> State:
        p = self.plan
        state: State = {}
        if p.conv is not None:
            state["conv"] = torch.zeros(batch, p.conv.width - 1, p.written_width, dtype=dtype, device=device)
        for i, reader in enumerate(self.readers):
            own = reader.init_state(batch, slots=slots, dtype=dtype, device=device)  # type: ignore[operator]
            state |= {f"{i}.{name}": tensor for name, tensor in own.items()}
        return state

    def after_step(self, statistics: list[dict[str, Any]]) -> None:
        self.projections.after_step(statistics)

    def no_weight_decay(self) -> frozenset[str]:
        names = {
            f"readers.{i}.{name}"
            for i, reader in enumerate(self.readers)
            for name in reader.no_weight_decay()  # type: ignore[operator]
        }
        names |= {f"projections.{name}" for name in self.projections.no_weight_decay()}
        names |= {name for name in ("norm_weight", "conv_bias_C") if getattr(self, name) is not None}
        return frozenset(names)

    def output_parameters(self) -> frozenset[str]:
        return frozenset(f"projections.{name}" for name in self.projections.output_names)

    @staticmethod
    def cost(config: Any, d_model: int, shape: Shape, depths: int = 1, parts: Parts | None = None) -> Cost:
        """Keys, values, convolution, state updates and the routing of projections are written; queries, gate, scores and
        output are read.

        What a recurrence computes for every token of a chunk, read or not, its reader counts as written. A token pays gate
        and output once, whoever reads: with several readers they stand under ``write`` in training, where every reader is
        computed, and under each read elsewhere.
        """
        return _cost(plan(config, parts), d_model, shape, depths)


@lru_cache(maxsize=4096)
def _cost(p: Plan, d_model: int, shape: Shape, depths: int) -> Cost:
    count, paid = len(p.readers), toll(p, d_model, shape)
    own = [part.load().cost(part.config, p.heads, d_model, shape, depths) for part in p.readers]
    taps = 0 if p.conv is None else p.conv.width
    # Numbers of the matrices that one token goes through, for each channel.
    channel = d_model * paid.used
    query = 0 if p.queries_convolved else channel * p.query_width
    common = channel * p.output_width * (2 if p.gate else 1)
    if count > 1 and p.query_streams == 1:
        query, common = 0, common + query
    once = count > 1 and shape.phase == "train"
    tail_bytes = max(taps - 1, 0) * p.written_width * shape.dtype_bytes
    conv = 0 if p.conv is None else p.written_width * (taps + p.conv.bias)
    written = channel * p.written_width
    write = Work.product(
        2.0 * (written + p.written_width * taps + (common if once else 0)) + paid.router_flops,
        weights=written + conv + paid.router_parameters + (common + p.norm_width if once else 0),
        state_traffic_bytes=2 * tail_bytes,
        kept_bytes=_kept(p, shape) + paid.kept_bytes if shape.phase == "train" else 0.0,
    )
    if taps:
        # The gradient of a convolution's input is taken where it was padded, too.
        padding = 2.0 * p.written_width * taps * (taps - 1) / shape.tokens
        write = write._replace(executed_training=write.executed_training + padding)
    for cost in own:
        write = write.plus(cost.write)
    own_read = query + (0 if once else common)
    read = Work.product(2.0 * own_read, weights=own_read + (0 if once else p.norm_width))
    matrices = d_model * (p.projected_width + p.output_width)
    unread = 0 if p.queries_convolved else (p.query_streams - 1) * p.query_width * d_model
    small = p.norm_width + conv + sum(c.parameters for c in own)
    fixed = paid.router_parameters + small
    return Cost(
        write=write,
        reads=tuple(read.plus(cost.reads[0]) for cost in own),
        parameters=paid.stored * matrices + fixed,
        active_parameters=paid.used * (matrices - unread) + fixed,
        state_bytes=tail_bytes + sum(c.state_bytes for c in own),
        scratch_bytes=sum(c.scratch_bytes for c in own),
        small_parameters=small,
    )


def _kept(p: Plan, shape: Shape) -> float:
    """Bytes kept of one token outside projections and readers.

    The convolution's input and what activations saw; queries and gate, which are views of one product; angles
    of rotary positions, and keys that stay because values lie beside them; around the gate and norm: the readers' output,
    its normalised or gated forms.
    """
    narrow, wide, H, T = shape.dtype_bytes, shape.wide_bytes, p.heads.heads, shape.tokens
    W, out, count = p.written_width, p.output_width, len(p.readers)
    read_width = p.projected_width - W
    kept = 0.0
    if p.conv is not None:
        kept += W * narrow * (1 + (p.conv.width - 1) / T)
    active_queries = any(part.q_activation == "silu" for part in p.readers)
    if p.kv_activation == "silu" or (active_queries and p.queries_convolved):
        kept += W * narrow
    if p.gate or (active_queries and not p.queries_convolved):
        kept += read_width * narrow
    if p.rotary is not None:
        streams = len({part.kv for part in p.readers if part.rotated})
        turned = streams + sum(part.rotated for part in p.readers)
        kept += turned * p.rotary[1] * p.heads.key_size * wide + streams * p.key_width * narrow
    kept += out * narrow
    fused = p.gate and p.norm != "none" and p.norm_place == "after_gate"
    if p.norm != "none":
        kept += out * (narrow + wide if fused else wide) + (H if p.norm == "head" else 1) * wide
    if p.gate and not fused:
        kept += 2 * out * narrow
    return kept + (out * narrow if count > 1 else 0)


def by_head(x_BTC: Tensor, heads: int) -> Tensor:
    return x_BTC.view(*x_BTC.shape[:-1], heads, x_BTC.shape[-1] // heads)


def activated(x: Tensor, activation: Activation) -> Tensor:
    return F.silu(x) if activation == "silu" else x


def _own(state: State, index: int) -> State:
    """The tensors of one reader, by their own names."""
    prefix = f"{index}."
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
