"""Small mixers that are right, each in few lines: what the broken ones change in one line, and unusual ones that must pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.contracts.mixer import Mixer, MixerDescriptor, StateSpec
from crossbreed.core.contracts.space import Choices
from crossbreed.core.ledger import Cost, Work
from crossbreed.core.ops.short_conv import short_conv

WIDTH = 4
DTYPES = ("float64", "float32")


class Plain(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def offered(
    cls: type, axis: str = "sequence", config: type[BaseModel] = Plain, **changes: Any
) -> list[MixerDescriptor]:
    """The descriptor of one small mixer; changes are of its capabilities, its ranges, or whether it sees its depth."""
    ranges: Mapping[str, Any] = changes.pop("ranges", {})
    sees_depth = changes.pop("sees_depth", None)
    able = MixerCapabilities(**{"axis": axis, "dtypes": DTYPES, **changes})  # type: ignore[arg-type]
    return [
        MixerDescriptor("small", cls, config, able, "a small mixer", ranges=ranges, sees_depth=sees_depth)
    ]


class Small(Mixer, nn.Module):
    """What all have: a square output matrix, masks, and no state."""

    numbers_of_state = 0

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__()
        self.config, self.width = config, build.d_model
        self.out = nn.Linear(build.d_model, build.d_model, bias=False)

    def valid(self, x_BTD: Tensor, context: Any) -> Tensor:
        ones_BT = torch.ones(x_BTD.shape[:2], dtype=torch.bool)
        return ones_BT if context.valid_BT is None else context.valid_BT

    def read(self, y_BTD: Tensor, context: Any, read_BT: Tensor | None) -> Tensor:
        mask_BT = self.valid(y_BTD, context)
        if read_BT is not None:
            mask_BT = mask_BT & read_BT
        return y_BTD.masked_fill(~mask_BT[..., None], 0.0)

    def resets(self, x_BTD: Tensor, context: Any) -> Tensor:
        """bool: valid tokens at which a document starts."""
        return context.reset_BT & self.valid(x_BTD, context)

    def output_parameters(self) -> frozenset[str]:
        return frozenset({"out.weight"})

    @classmethod
    def cost(cls, config: Any, d_model: int, shape: Any, depths: int = 1, parts: Any = None) -> Cost:
        square = d_model * d_model
        return Cost(
            reads=(Work.product(2.0 * square, weights=square),),
            parameters=square,
            active_parameters=square,
            state_bytes=cls.numbers_of_state * d_model * shape.dtype_bytes,
        )


class Pointwise(Small):
    """A channel mixer."""

    def forward(
        self, x_BTD: Tensor, context: Any, state: Any, read_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        return self.read(self.mix(x_BTD, context), context, read_BT), state

    def mix(self, x_BTD: Tensor, context: Any) -> Tensor:
        return self.out(F.silu(x_BTD))


class RunningMean(Small):
    """The mean of a document's past by running sums: a cumulative sum with a running normaliser."""

    numbers_of_state = 2

    def forward(
        self, x_BTD: Tensor, context: Any, state: Any, read_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        write_BT = self.written(x_BTD, context, read_BT)
        sums = [
            self.running(part, context, state, name) for name, part in self.parts(x_BTD, write_BT).items()
        ]
        y_BTD = self.read(self.out(self.normalised(*sums)), context, read_BT)
        after = None if state is None else self.kept(state, dict(zip(("sum", "count"), sums, strict=True)))
        return y_BTD, after

    def written(self, x_BTD: Tensor, context: Any, read_BT: Tensor | None) -> Tensor:
        return self.valid(x_BTD, context)

    def parts(self, x_BTD: Tensor, write_BT: Tensor) -> dict[str, Tensor]:
        count_BTD = write_BT[..., None].expand_as(x_BTD).to(x_BTD.dtype)
        return {"sum": x_BTD * count_BTD, "count": count_BTD}

    def running(self, part_BTD: Tensor, context: Any, state: Any, name: str) -> Tensor:
        """Sums since the document began, what was carried included."""
        total_BTD = part_BTD.cumsum(1)
        number_T = torch.arange(part_BTD.shape[1])
        begin_BT = torch.where(self.resets(part_BTD, context), number_T, -1).cummax(1).values
        before_BTD = F.pad(total_BTD, (0, 0, 1, 0)).gather(
            1, begin_BT.clamp(min=0)[..., None].expand_as(part_BTD)
        )
        here = begin_BT[..., None] >= 0
        carried_B1D = torch.zeros_like(part_BTD[:, :1]) if state is None else state[name][:, None]
        return torch.where(here, total_BTD - before_BTD, total_BTD + carried_B1D)

    def normalised(self, sum_BTD: Tensor, count_BTD: Tensor) -> Tensor:
        return sum_BTD / count_BTD.clamp(min=1)

    def kept(self, state: Any, sums: dict[str, Tensor]) -> Any:
        return {name: sum_BTD[:, -1] for name, sum_BTD in sums.items()}

    def state_specs(self) -> tuple[StateSpec, ...]:
        return tuple(StateSpec(name, (self.width,)) for name in ("sum", "count"))

    def init_state(self, batch: int, *, slots: int = 0, dtype: Any = None, device: Any = None) -> Any:
        return {
            spec.name: torch.zeros(batch, self.width, dtype=dtype, device=device)
            for spec in self.state_specs()
        }


class Decay(Small):
    """S = a S + x, step by step, with a learned decay for each channel."""

    numbers_of_state = 1

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__(config, build)
        self.rate_D = nn.Parameter(torch.linspace(0.5, 3.0, build.d_model))

    def forward(
        self, x_BTD: Tensor, context: Any, state: Any, read_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        write_BT, reset_BT = self.valid(x_BTD, context), self.forgets(x_BTD, context)
        S_BD = self.carried(x_BTD, state)
        streams = []
        for t in range(x_BTD.shape[1]):
            S_BD = S_BD.masked_fill(reset_BT[:, t, None], 0.0)
            new_BD = torch.sigmoid(self.rate_D) * S_BD + x_BTD[:, t]
            S_BD = torch.where(write_BT[:, t, None], new_BD, S_BD)
            streams.append(S_BD)
        y_BTD = self.read(self.mixed(torch.stack(streams, 1), x_BTD, context), context, read_BT)
        return y_BTD, self.after(state, S_BD)

    def forgets(self, x_BTD: Tensor, context: Any) -> Tensor:
        return self.resets(x_BTD, context)

    def carried(self, x_BTD: Tensor, state: Any) -> Tensor:
        return torch.zeros_like(x_BTD[:, 0]) if state is None else state["S"]

    def mixed(self, S_BTD: Tensor, x_BTD: Tensor, context: Any) -> Tensor:
        return self.out(S_BTD)

    def after(self, state: Any, S_BD: Tensor) -> Any:
        return None if state is None else {"S": S_BD}

    def state_specs(self) -> tuple[StateSpec, ...]:
        return (StateSpec("S", (self.width,)),)

    def init_state(self, batch: int, *, slots: int = 0, dtype: Any = None, device: Any = None) -> Any:
        return {"S": torch.zeros(batch, self.width, dtype=dtype, device=device)}

    @classmethod
    def cost(cls, config: Any, d_model: int, shape: Any, depths: int = 1, parts: Any = None) -> Cost:
        plain = super().cost(config, d_model, shape, depths, parts)
        count = plain.parameters + d_model
        return plain._replace(parameters=count, active_parameters=count, small_parameters=d_model)


class Convolution(Small):
    """A short causal convolution along the sequence."""

    numbers_of_state = WIDTH - 1

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__(config, build)
        self.taps_DW = nn.Parameter(torch.randn(build.d_model, WIDTH) / 2)

    def forward(
        self, x_BTD: Tensor, context: Any, state: Any, read_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        before = None if state is None else state["tail"]
        if before is not None:
            begins_B = context.positions_BT[:, 0] == 0
            before = before.masked_fill((begins_B & self.valid(x_BTD, context)[:, 0])[:, None, None], 0.0)
        reset_BT = context.reset_BT if context.document_BT is not None else None
        y_BTD, tail = short_conv(
            x_BTD, self.taps_DW, None, tail_BWC=before, valid_BT=context.valid_BT, reset_BT=reset_BT
        )
        after = None if state is None else {"tail": self.window(before, tail, y_BTD)}
        return self.read(self.out(y_BTD), context, read_BT), after

    def window(self, before: Tensor, tail: Tensor, y_BTD: Tensor) -> Tensor:
        return tail

    def state_specs(self) -> tuple[StateSpec, ...]:
        return (StateSpec("tail", (WIDTH - 1, self.width)),)

    def init_state(self, batch: int, *, slots: int = 0, dtype: Any = None, device: Any = None) -> Any:
        return {"tail": torch.zeros(batch, WIDTH - 1, self.width, dtype=dtype, device=device)}

    @classmethod
    def cost(cls, config: Any, d_model: int, shape: Any, depths: int = 1, parts: Any = None) -> Cost:
        plain, taps = super().cost(config, d_model, shape, depths, parts), WIDTH * d_model
        count = plain.parameters + taps
        return plain._replace(
            write=Work.product(2.0 * taps), parameters=count, active_parameters=count, small_parameters=taps
        )


class Attention(Small):
    """One head of causal attention over a cache; documents packed into a row are not supported."""

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__(config, build)
        self.backend = build.backend

    def forward(
        self, x_BTD: Tensor, context: Any, state: Any, read_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        B, T, _ = x_BTD.shape
        alive_BS, keys_BSD = self.valid(x_BTD, context), x_BTD
        visible_BTS = self.causal(x_BTD, context)[None] & alive_BS[:, None]
        # A token that is not valid sees itself, so that no row is empty; its output is dropped.
        visible_BTS = visible_BTS | torch.eye(T, dtype=torch.bool)
        if state is not None:
            begins_B = (context.positions_BT[:, 0] == 0) & alive_BS[:, 0]
            old_BS = state["alive"] & ~begins_B[:, None]
            visible_BTS = torch.cat((old_BS[:, None].expand(B, T, -1), visible_BTS), 2)
            keys_BSD = torch.cat((state["keys"], keys_BSD), 1)
            alive_BS = torch.cat((old_BS, alive_BS), 1)
        scores_BTS = x_BTD @ keys_BSD.mT * self.scale()
        o_BTD = self.weights(scores_BTS.masked_fill(~visible_BTS, float("-inf"))) @ keys_BSD
        after = None if state is None else {"keys": keys_BSD, "alive": alive_BS}
        return self.read(self.out(o_BTD), context, read_BT), after

    def causal(self, x_BTD: Tensor, context: Any) -> Tensor:
        T = x_BTD.shape[1]
        return torch.ones(T, T, dtype=torch.bool).tril()

    def scale(self) -> float:
        return self.width**-0.5

    def weights(self, scores_BTS: Tensor) -> Tensor:
        return scores_BTS.softmax(-1)

    def state_specs(self) -> tuple[StateSpec, ...]:
        return (StateSpec("keys", ("slots", self.width)), StateSpec("alive", ("slots",), "bool"))

    def init_state(self, batch: int, *, slots: int = 0, dtype: Any = None, device: Any = None) -> Any:
        keys = torch.zeros(batch, 0, self.width, dtype=dtype, device=device)
        return {"keys": keys, "alive": torch.zeros(batch, 0, dtype=torch.bool, device=device)}

    @classmethod
    def cost(cls, config: Any, d_model: int, shape: Any, depths: int = 1, parts: Any = None) -> Cost:
        plain = super().cost(config, d_model, shape, depths, parts)
        read = plain.reads[0].plus(Work.product(4.0 * d_model * shape.tokens))
        return plain._replace(reads=(read,), state_bytes=shape.tokens * (d_model * shape.dtype_bytes + 1))


class Memory(Small):
    """Linear attention with a running normaliser over a state of D x D: large, and never forgetting inside a document."""

    def forward(
        self, x_BTD: Tensor, context: Any, state: Any, read_BT: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        write_BT, reset_BT = self.valid(x_BTD, context), self.resets(x_BTD, context)
        S_BDD = x_BTD.new_zeros(len(x_BTD), self.width, self.width) if state is None else state["S"]
        z_BD = torch.zeros_like(x_BTD[:, 0]) if state is None else state["z"]
        outputs = []
        for t in range(x_BTD.shape[1]):
            x_BD, feature_BD = x_BTD[:, t], F.elu(x_BTD[:, t]) + 1
            keep = (~reset_BT[:, t, None]).to(x_BD.dtype)
            new = write_BT[:, t, None].to(x_BD.dtype)
            S_BDD = S_BDD * keep[..., None] + (new * feature_BD)[..., None] * x_BD[:, None]
            z_BD = z_BD * keep + new * feature_BD
            norm_B1 = (z_BD * feature_BD).sum(-1, keepdim=True).clamp(min=1e-6)
            outputs.append((S_BDD * feature_BD[..., None]).sum(1) / norm_B1)
        y_BTD = self.read(self.out(torch.stack(outputs, 1)), context, read_BT)
        return y_BTD, None if state is None else {"S": S_BDD, "z": z_BD}

    def state_specs(self) -> tuple[StateSpec, ...]:
        return (StateSpec("S", (self.width, self.width)), StateSpec("z", (self.width,)))

    def init_state(self, batch: int, *, slots: int = 0, dtype: Any = None, device: Any = None) -> Any:
        return {
            spec.name: torch.zeros(batch, *spec.shape, dtype=dtype, device=device)
            for spec in self.state_specs()
        }  # type: ignore[arg-type]

    @classmethod
    def cost(cls, config: Any, d_model: int, shape: Any, depths: int = 1, parts: Any = None) -> Cost:
        plain = super().cost(config, d_model, shape, depths, parts)
        return plain._replace(state_bytes=d_model * (d_model + 1) * shape.dtype_bytes)


class Dropout(Pointwise):
    """Training differs from evaluation, by statement."""

    def mix(self, x_BTD: Tensor, context: Any) -> Tensor:
        return self.out(F.dropout(F.silu(x_BTD), 0.2, context.training))


class Late(Pointwise):
    """A gain behind another that starts at zero and holds its gradient back by a step, by statement."""

    def __init__(self, config: Any, build: Any) -> None:
        super().__init__(config, build)
        self.outer_D = nn.Parameter(torch.zeros(build.d_model))
        self.inner_D = nn.Parameter(torch.ones(build.d_model))

    def mix(self, x_BTD: Tensor, context: Any) -> Tensor:
        return super().mix(x_BTD * (1 + self.outer_D * self.inner_D), context)

    @classmethod
    def cost(cls, config: Any, d_model: int, shape: Any, depths: int = 1, parts: Any = None) -> Cost:
        plain = super().cost(config, d_model, shape, depths, parts)
        count = plain.parameters + 2 * d_model
        return plain._replace(parameters=count, active_parameters=count)


class Sized(Pointwise):
    """A channel mixer by heads, with a setting."""

    def mix(self, x_BTD: Tensor, context: Any) -> Tensor:
        return self.out(F.silu(x_BTD) * self.factor())

    def factor(self) -> float:
        return float(self.config.factor)


class Factor(Plain):
    factor: int = 1


FACTORS = {"factor": Choices((1, 2, 3))}
