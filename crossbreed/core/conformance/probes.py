"""Parts with known behaviour and known costs, from which rules build models around the plugin under check.

They stand beside what is registered, under names that no plugin can take by accident, so that no rule depends on a built-in.

Legend: B rows, T tokens, S slots, D model width, M state width.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from crossbreed.core.contracts.capabilities import MixerCapabilities, RouterCapabilities
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.depth import DepthPolicy, DepthPolicyDescriptor, Step
from crossbreed.core.contracts.mixer import Mixer, MixerBuild, MixerDescriptor, State, StateSpec
from crossbreed.core.contracts.parts import Kind
from crossbreed.core.contracts.router import Decision, Router, RouterBuild, RouterDescriptor, RouterState
from crossbreed.core.contracts.space import Choices, Integers
from crossbreed.core.host import Owner, Registered, Registry
from crossbreed.core.ledger import Cost, Shape, Work

FADING, LOOKING = "conformance.fading", "conformance.looking"
SIGN = "conformance.sign"
OWN, SHARED = "conformance.own", "conformance.shared"
DECAY = 0.75


class MixerConfig(BaseModel):
    """width: of the state."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: int = Field(default=6, ge=1)


class Fading(Mixer, nn.Module):
    """s_t = 0.75 s_(t-1) + x_t A, y_t = s_t B: a state of one size, and tokens that do not read skip their product."""

    def __init__(self, config: MixerConfig, build: MixerBuild) -> None:
        super().__init__()
        self.width = config.width
        self.in_DM = nn.Parameter(torch.randn(build.d_model, config.width) / build.d_model**0.5)
        self.out_MD = nn.Parameter(torch.randn(config.width, build.d_model) / config.width**0.5)

    def forward(
        self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        u_BTM = x_BTD @ self.in_DM.to(x_BTD.dtype)
        s_BM = u_BTM.new_zeros(len(x_BTD), self.width) if state is None else state["s_BM"]
        kept = []
        for t in range(x_BTD.shape[1]):
            s_BM = s_BM * (DECAY * ~context.reset_BT[:, t, None]) + u_BTM[:, t]
            kept.append(s_BM)
        y_BTD = _where_read(torch.stack(kept, 1), self.out_MD, read_BT)
        return y_BTD, None if state is None else {"s_BM": s_BM}

    def state_specs(self) -> tuple[StateSpec, ...]:
        return (StateSpec("s_BM", (self.width,)),)

    def init_state(self, batch: int, *, slots: int = 0, dtype: Any = None, device: Any = None) -> State:
        return {"s_BM": torch.zeros(batch, self.width, dtype=dtype, device=device)}

    @staticmethod
    def cost(config: MixerConfig, d_model: int, shape: Shape, depths: int = 1, parts: Any = None) -> Cost:
        weights = d_model * config.width
        product = Work.product(2.0 * weights, weights=weights)
        bytes_ = config.width * shape.dtype_bytes
        return Cost(product, (product,), 2 * weights, 2 * weights, state_bytes=bytes_)


class Looking(Mixer, nn.Module):
    """y_t = sum over s <= t of (x_t . k_s) k_s B with k = x A, made small: a state and a read that grow with the text."""

    def __init__(self, config: MixerConfig, build: MixerBuild) -> None:
        super().__init__()
        self.width = config.width
        self.in_DM = nn.Parameter(torch.randn(build.d_model, config.width) / build.d_model**0.5)
        self.out_MD = nn.Parameter(torch.randn(config.width, build.d_model) / config.width**0.5)

    def forward(
        self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        k_BTM = x_BTD @ self.in_DM.to(x_BTD.dtype)
        k_BSM = k_BTM if state is None else torch.cat((state["k_BSM"], k_BTM), 1)
        tokens, slots = k_BTM.shape[1], k_BSM.shape[1]
        seen_TS = torch.ones(tokens, slots, dtype=torch.bool, device=x_BTD.device).tril(slots - tokens)
        score_BTS = (k_BTM @ k_BSM.transpose(1, 2)) * seen_TS
        y_BTD = _where_read(score_BTS @ k_BSM / 64.0, self.out_MD, read_BT)
        return y_BTD, None if state is None else {"k_BSM": k_BSM}

    def state_specs(self) -> tuple[StateSpec, ...]:
        return (StateSpec("k_BSM", ("slots", self.width)),)

    def init_state(self, batch: int, *, slots: int = 0, dtype: Any = None, device: Any = None) -> State:
        return {"k_BSM": torch.zeros(batch, 0, self.width, dtype=dtype, device=device)}

    @staticmethod
    def cost(config: MixerConfig, d_model: int, shape: Shape, depths: int = 1, parts: Any = None) -> Cost:
        weights = d_model * config.width
        projection = Work.product(2.0 * weights, weights=weights)
        # Scores and their sums are computed for all tokens; the ledger charges every visible pair.
        looks = Work.product(4.0 * config.width * shape.mean_context, 4.0 * config.width * shape.tokens)
        bytes_ = config.width * shape.tokens * shape.dtype_bytes
        return Cost(projection.plus(looks), (projection,), 2 * weights, 2 * weights, state_bytes=bytes_)


def _where_read(x_BTM: Tensor, out_MD: Tensor, read_BT: Tensor | None) -> Tensor:
    out_MD = out_MD.to(x_BTM.dtype)
    if read_BT is None:
        return x_BTM @ out_MD
    y_BTD = x_BTM.new_zeros(*x_BTM.shape[:2], out_MD.shape[1])
    return y_BTD.index_put((read_BT,), x_BTM[read_BT] @ out_MD)


class SignConfig(BaseModel):
    """segment: tokens that share a choice, or None for a choice per token. rate: the nominal share of choice 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    segment: int | None = Field(default=None, ge=1)
    rate: float = Field(default=0.5, ge=0, le=1)


class Sign(Router, nn.Module):
    """Choice 1 where the first feature is positive. Costs nothing and learns nothing."""

    def __init__(self, config: SignConfig, build: RouterBuild) -> None:
        super().__init__()
        self.segment = config.segment

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        return Decision((h_BTD[..., 0] > 0).to(torch.int64)), state

    def segment_length(self) -> int | None:
        return self.segment

    @staticmethod
    def rates(config: SignConfig, kind: Any, choices: int) -> tuple[float, ...]:
        return (1 - config.rate, *[config.rate / (choices - 1)] * (choices - 1))


class NoSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Own(DepthPolicy):
    """Every depth has weights of its own."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        return [Step(depth, block, depth) for depth in range(repeats) for block in range(blocks)]


class Shared(DepthPolicy):
    """All depths have one set of weights."""

    def plan(self, repeats: int, blocks: int) -> list[Step]:
        return [Step(depth, block, 0) for depth in range(repeats) for block in range(blocks)]


SPARSE = MixerCapabilities("sequence", execution=dict.fromkeys(("train", "prefill", "decode"), "sparse"))
WIDTHS = Integers(1, 4096)
PROBES: dict[Kind, tuple[Any, ...]] = {
    "mixer": (
        MixerDescriptor(FADING, Fading, MixerConfig, SPARSE, "a state of one size", free={"width": WIDTHS}),
        MixerDescriptor(LOOKING, Looking, MixerConfig, SPARSE, "a growing state", free={"width": WIDTHS}),
    ),
    "router": (
        RouterDescriptor(
            SIGN,
            Sign,
            SignConfig,
            RouterCapabilities(("gate", "halt"), max_choices=2),
            "the sign of the first feature",
            ranges={"segment": Choices((1, 4, 8))},
        ),
    ),
    "depth": (
        DepthPolicyDescriptor(OWN, Own, NoSettings, "own weights", shares_weights=False),
        DepthPolicyDescriptor(SHARED, Shared, NoSettings, "shared weights", shares_weights=True),
    ),
}
OWNER = Owner("conformance", "crossbreed", "conformance", builtin=True)


def with_probes(registry: Registry, *kinds: Kind) -> Registry:
    """The registry with the probes beside what is registered; only those of ``kinds`` where any are named."""
    entries = {kind: dict(named) for kind, named in registry.entries.items()}
    for kind in kinds or PROBES:
        entries[kind] |= {descriptor.name: Registered(descriptor, OWNER) for descriptor in PROBES[kind]}
    return Registry(entries, registry.collisions, registry.problems, registry.owners, registry.files)
