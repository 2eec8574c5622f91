"""Routers: for each token or segment, choose one of N. The same router may gate a block, pick a mode, or halt depth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from crossbreed.core.contracts.capabilities import RouterCapabilities, SiteKind
from crossbreed.core.contracts.schedule import Schedule
from crossbreed.core.contracts.space import Range
from crossbreed.core.ledger import Cost, Shape

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from crossbreed.core.contracts.context import Context
    from crossbreed.core.ops.one_token import Normed

RouterState = dict[str, "Tensor"]


@dataclass(frozen=True)
class Decision:
    """One choice a token. Choice 0 is the cheapest (gate: skip, halt: stop, mode: the cheapest reader first).

    choice_BT:   int64 in [0, N).
    weight_BTN:  soft weights, one-hot in the forward pass and soft in the backward pass, or None (no gradient).
    losses:      {name: scalar} auxiliary losses.
    statistics:  {name: number or tensor}; handed to ``after_step`` once per optimiser step.
    span:        (smallest, greatest) choice where routing has looked at them from the host, else None; not a router's to set.
    taken_BT:    bool, where choice 1 of two is taken, if routing has it at hand; not a router's to set.
    """

    choice_BT: Tensor
    weight_BTN: Tensor | None = None
    losses: Mapping[str, Tensor] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    span: tuple[int, int] | None = None
    taken_BT: Tensor | None = None

    def slice(self, start: int, stop: int) -> Decision:
        """The decision for tokens ``start:stop``."""
        weight = None if self.weight_BTN is None else self.weight_BTN[:, start:stop]
        return Decision(self.choice_BT[:, start:stop], weight)


class Thresholded(Decision):
    """Choice 1 where a score exceeds tau, strictly; compared when it is asked for, since routing can do it on its way.

    parts_BTP: what adds up to the score. tau: one number.
    """

    def __init__(self, parts_BTP: Tensor, tau: Tensor) -> None:
        # In place of the fields of a frozen class.
        self.__dict__.update(
            parts_BTP=parts_BTP, tau=tau, weight_BTN=None, losses={}, statistics={}, span=None
        )

    parts_BTP: Tensor
    tau: Tensor

    @cached_property
    def choice_BT(self) -> Tensor:  # type: ignore[override]
        return (self.parts_BTP.sum(-1) > self.tau).long()


@dataclass(frozen=True)
class RouterBuild:
    """What a router is told when it is built.

    site:    where it stands: ``"stage.block.gate"``, ``"stage.halt"`` or ``"mode"``.
    kind:    ``gate``, ``halt`` or ``mode``.
    d_model: width of the stream.
    vocab:   size of the vocabulary, for what reads the model's own next-token distribution.
    choices: N, how many choices it tells apart.
    """

    site: str
    kind: SiteKind
    d_model: int
    vocab: int
    choices: int


class Router:
    """Base class (a mixin beside ``torch.nn.Module`` where it has weights) of all routers.

    Built as ``factory(config, build)``. It must not keep generator state: draw from ``context.uniform``.
    Statistics and losses count ``context.counted_BT()`` only, of all rows of the batch (``context.whole``). In training a router may
    threshold with statistics of this call (``mu' = EMA(mu, this call)``), but commits them only in ``after_step``.
    """

    def forward(
        self, h_BTD: Tensor, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        """Choose for every token of the piece. ``h`` is what the site shows: at a gate the normalised input of the block's
        first sublayer, at mode the embeddings, at halt the stream after the final norm."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def token(
        self, stream: Normed, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        """The same for a recorded token at a gate, of the norm of the stream: ``stream.x``.

        To be replaced by a router whose kernels read the norm on their way, which saves one.
        """
        return self.forward(stream.x, context, state)

    def segment_length(self) -> int | None:
        """Tokens per segment, or None for a choice per token. Routing holds a segment's first choice for all of it;
        segments restart with each document."""
        return None

    def init_state(self, batch: int, device: torch.device | str | None = None) -> RouterState:
        """The router's own causal state; reset to this at position 0 of each document."""
        return {}

    def observe(self, output_BTD: Tensor, context: Context, state: RouterState | None) -> RouterState | None:
        """Feedback routers: see the model's output (after the final norm) on a finished piece of tokens.

        What it records in training (``context.record``) reaches ``after_step`` with the statistics of its decisions.
        """
        return state

    def after_step(self, statistics: list[Mapping[str, Any]]) -> None:
        """Commit running statistics once per optimiser step, from those of all calls of the step."""

    def no_weight_decay(self) -> frozenset[str]:
        """Names of own parameters that weight decay must spare, beside all with fewer than two dimensions."""
        return frozenset()

    def student(self) -> tuple[str, dict[str, Any]] | None:
        """Name and settings of the router that may take this one's place in a trained model and decide alike for less.

        None where there is none. A router with a student defines ``signal``.
        """
        return None

    def signal(self, h_BTD: Tensor, context: Context) -> Tensor:
        """The number BT that decides, before it meets the threshold, without gradient."""
        raise NotImplementedError(f"{type(self).__name__} must define signal, since it has a student")

    def learn(
        self,
        teacher: Router,
        h_ND: Tensor,
        signal_N: Tensor,
        *,
        steps: int,
        seed: int = 0,
        progress: Callable[[], None] = lambda: None,
    ) -> float:
        """Become the student of a trained router: fit its ``signal`` on N tokens in ``steps`` steps, and decide as often.

        Returns what was added to the fitted signal for that. ``progress`` is called once a step. Raises ConfigError where there is nothing to fit.
        """
        raise NotImplementedError(f"{type(self).__name__} must define learn, since it is named as a student")

    @staticmethod
    def schedule(config: Any) -> Schedule | None:
        """What the site does outside training instead of asking this router, or None to ask it.

        A scheduled site decides by position alone, whatever the segments, and costs nothing outside training.
        """
        return None

    @staticmethod
    def training_schedule(config: Any) -> Schedule | None:
        """What the site does in training instead of what this router decides, or None to do that.

        The router is asked all the same, so that its statistics and losses see every token, and is charged; its soft
        weights are dropped, and training is charged at the schedule's shares.
        """
        return None

    @staticmethod
    def rates(config: Any, kind: SiteKind, choices: int) -> tuple[float, ...]:
        """Nominal share of tokens per choice before training, summing to 1. Not asked where there is a schedule."""
        return (1.0 / choices,) * choices

    @staticmethod
    def training_rates(config: Any, kind: SiteKind, choices: int) -> tuple[float, ...] | None:
        """The same in training, for a router whose rule is another one there; None: its ``rates``, or those realised."""
        return None

    @staticmethod
    def cost(config: Any, build: RouterBuild, shape: Shape) -> Cost:
        """Cost of deciding, charged as ``write`` to every asked token; parameters included."""
        return Cost()


@dataclass(frozen=True)
class RouterDescriptor:
    """How a router is offered to the host; importing it imports no torch.

    name:     what genomes, studies and commands call it; unique among its kind.
    factory:  ``"module:Class"``, the class, or a callable without arguments that imports late and returns it.
    config:   a pydantic model of its settings, every one with a default; it should forbid unknown keys.
    capabilities: what it states it can do.
    summary:  what it is in one line, for listings.
    ranges:   settings that a search may draw, with their ranges.
    choices:  settings that hold choices, alone or in (position, choice) pairs: at mode a reader's name stands for its number.
    """

    name: str
    factory: str | Callable[..., Any]
    config: type[BaseModel]
    capabilities: RouterCapabilities
    summary: str
    ranges: Mapping[str, Range] = field(default_factory=dict)
    choices: tuple[str, ...] = ()
