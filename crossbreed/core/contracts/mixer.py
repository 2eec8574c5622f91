"""Mixers and readers: everything that mixes information along the sequence, depth or channel axis.

A mixer class is ``class Attention(Mixer, torch.nn.Module)`` built as ``factory(config, build)``. One forward serves
training, prefill in any pieces and one-token decode. The rule is **write always, read where chosen**: every valid token
writes its keys, values and state; ``read_BT`` decides only whose output is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.contracts.space import Range
from crossbreed.core.ledger import Cost, Shape

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from crossbreed.core.contracts.context import Context
    from crossbreed.core.contracts.parts import Parts
    from crossbreed.core.ops.one_token import Normed

State = dict[str, "Tensor"]
"""A mixer's state: named tensors, batch first. Structure, shapes beyond the slot axis and dtypes never change."""


@dataclass(frozen=True)
class StateSpec:
    """One tensor of a mixer's state.

    shape:   sizes after the batch axis; the string ``"slots"`` marks the axis that grows with the tokens written.
    dtype:   ``"activation"`` (the model's) or a fixed one such as ``"float32"``.
    scope:   ``"sequence"`` (kept by stage, depth, block, sublayer) or ``"pass"`` (made by the stage for each piece,
             shared by all depths, gone afterwards).
    """

    name: str
    shape: tuple[int | Literal["slots"], ...]
    dtype: str = "activation"
    scope: Literal["sequence", "pass"] = "sequence"


@dataclass(frozen=True)
class MixerBuild:
    """What a mixer is told when it is built.

    d_model: width of the stream.
    depths:  how many depths its stage runs.
    backend: a name from its capabilities, or ``"auto"``.
    parts:   what is registered, for a mixer that holds others; None where nothing is.
    """

    d_model: int
    depths: int = 1
    backend: str = "auto"
    parts: Parts | None = None


class Mixer:
    """Base class (a mixin beside ``torch.nn.Module``) of all mixers.

    A mixer initialises its own weights; nothing outside re-initialises them. Only the matrices named by
    ``output_parameters`` may be rescaled or zeroed, by the block's ``output_init``.
    """

    def forward(
        self, x_BTD: Tensor, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        """Mix, and return (y_BTD, new state). ``state`` None: start empty and keep none.

        y is zero where ``read_BT`` (or ``context.valid_BT``) is False. The given state is never changed in place while
        gradients are on; without gradients, slot buffers may be shared with the returned state.
        """
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def onto(
        self, stream: Normed, context: Context, state: State | None, read_BT: Tensor | None = None
    ) -> tuple[Tensor, State | None]:
        """(h + y, new state) of a recorded token: of the stream h, whose norm ``stream.x`` is mixed.

        To be replaced by a mixer whose products read the norm and write the sum on their way, which saves kernels.
        """
        y_BTD, after = self.forward(stream.x, context, state, read_BT)
        return stream.h + y_BTD, after

    def state_specs(self) -> tuple[StateSpec, ...]:
        """The tensors of this mixer's state; empty for mixers without one."""
        return ()

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> State:
        """An empty state. ``slots`` reserves room for that many tokens (a hint, never a limit)."""
        return {}

    def no_weight_decay(self) -> frozenset[str]:
        """Names of own parameters that weight decay must spare, beside all with fewer than two dimensions."""
        return frozenset()

    def output_parameters(self) -> frozenset[str]:
        """Names of the matrices that write into the residual stream."""
        return frozenset()

    def after_step(self, statistics: list[dict[str, Any]]) -> None:
        """Called once after each optimiser step with everything recorded at this mixer's site (expert balancing)."""

    @staticmethod
    def cost(config: Any, d_model: int, shape: Shape, depths: int = 1, parts: Parts | None = None) -> Cost:
        """Cost at a shape without building weights, per depth. ``shape.phase`` selects chunk or one-step form."""
        raise NotImplementedError("a mixer must define cost(config, d_model, shape, depths, parts)")


class Reader:
    """What a multi-mixer holds: reads one shared stream of keys and values in its own way.

    ``class SoftmaxReader(Reader, torch.nn.Module)``, built as ``factory(config, ReaderBuild)``. It owns its state and the
    small tensors that only it needs (decays, gates); projections belong to the mixer around it.
    """

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
        """Return (o_BTHV, new state); every valid token is written, o is zero where not read.

        Heads of q, k and v may differ as long as each divides H, the number of output heads.
        """
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def serving(self, device: torch.device, dtype: torch.dtype) -> str:
        """The backend that computes activations of ``dtype`` on ``device``; it is recorded with what is measured."""
        return "reference"

    def state_specs(self) -> tuple[StateSpec, ...]:
        """The tensors of this reader's state; empty for readers without one."""
        return ()

    def init_state(
        self,
        batch: int,
        *,
        slots: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> State:
        """An empty state, as a mixer's."""
        return {}

    def no_weight_decay(self) -> frozenset[str]:
        """Names of own parameters that weight decay must spare, beside all with fewer than two dimensions."""
        return frozenset()

    @staticmethod
    def cost(config: Any, heads: HeadShape, d_model: int, shape: Shape, depths: int = 1) -> Cost:
        """Cost of this reader alone (``write``: state update; ``reads[0]``: its read), without projections, per depth."""
        raise NotImplementedError("a reader must define cost(config, heads, d_model, shape, depths)")


@dataclass(frozen=True)
class HeadShape:
    """Head counts and sizes: H output heads, Q query heads, G key heads, U value heads (each divides H), sizes K and V."""

    heads: int
    query_heads: int
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int


@dataclass(frozen=True)
class ReaderBuild:
    """What a reader is told when it is built."""

    d_model: int
    heads: HeadShape
    backend: str = "auto"
    depths: int = 1


@dataclass(frozen=True)
class MixerDescriptor:
    """How a mixer is offered to the host; importing it imports no torch.

    name:     what genomes, studies and commands call it; unique among its kind.
    factory:  ``"module:Class"``, the class, or a callable without arguments that imports late and returns it.
    config:   a pydantic model of its settings, every one with a default; it should forbid unknown keys.
    capabilities: what it states it can do.
    summary:  what it is in one line, for listings.
    ranges:   settings that a search may draw, with their ranges.
    free:     settings a budget may move, with their legal grids (``Integers``). Dots lead into nested settings.
    on_request: settings a budget moves only where it names them, with their legal grids.
    equal:    settings that take another one's value while they are None, such as ``kv_heads`` that of ``heads``.
    reader:   as ``factory``, for the reader that a multi-mixer may hold in its place; None where there is none.
    reader_config: as ``config``, for that reader.
    sees_depth: whether a mixer with a given config is another one at another depth of its stage. Where none is, layers listed
              and layers repeated are one genome; None: it is.
    """

    name: str
    factory: str | Callable[..., Any]
    config: type[BaseModel]
    capabilities: MixerCapabilities
    summary: str
    ranges: Mapping[str, Range] = field(default_factory=dict)
    free: Mapping[str, Range] = field(default_factory=dict)
    on_request: Mapping[str, Range] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)
    reader: str | Callable[..., Any] | None = None
    reader_config: type[BaseModel] | None = None
    sees_depth: Callable[[Any], bool] | None = None
