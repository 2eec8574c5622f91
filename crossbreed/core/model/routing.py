"""A router at its site: forcing, holding a segment's choice, counting, and committing statistics once per step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from crossbreed.core import genome
from crossbreed.core.contracts.capabilities import SiteKind
from crossbreed.core.contracts.context import Context, Recorder
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.contracts.router import Decision, RouterBuild, RouterState, Thresholded
from crossbreed.core.contracts.schedule import Schedule
from crossbreed.core.model.state import without_depth
from crossbreed.core.ops import thresholds
from crossbreed.core.ops.one_token import Normed

HELD = "held_B"
"""Key under which routing keeps the choice of the segment a row is in; -1 before the first token."""


@dataclass(frozen=True)
class Site:
    """A place where something is decided, as profilers and reports see it."""

    name: str
    kind: SiteKind
    choices: int
    router: str
    segment: int | None
    names: tuple[str, ...] = ()
    """Of the choices: the readers at mode, empty elsewhere."""


class RoutedSite(nn.Module):
    """One router where it stands. The router proposes for every token; this layer decides what holds.

    Order of authority: a forced choice, then the router's schedule for the phase, then the choice held for the segment,
    then the router's own.
    """

    def __init__(
        self,
        gene: genome.Router,
        name: str,
        kind: SiteKind,
        choices: int,
        sizes: RouterSizes,
        names: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        parts = sizes.parts
        capabilities = parts.descriptor("router", gene.name).capabilities
        config = parts.config("router", gene.name, gene.params)
        build = RouterBuild(site=name, kind=kind, d_model=sizes.d_model, vocab=sizes.vocab, choices=choices)
        self.router = parts.factory("router", gene.name)(config, build)
        self.schedule: Schedule | None = self.router.schedule(config)
        self.training_schedule: Schedule | None = self.router.training_schedule(config)
        self.name, self.kind, self.choices, self.names = name, kind, choices, names
        self.segment: int | None = self.router.segment_length()
        self.feedback = kind in capabilities.feedback_sites
        self.needs_labels = capabilities.needs_labels
        self.router_name = gene.name
        self._pending: list[Mapping[str, Any]] = []

    def forward(
        self, h_BTD: Tensor | Normed, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        """Decide for every token of a piece; ``context.site`` names this call (with its depth).

        A recorded token's input may be the norm of its stream, not made yet.
        """
        if self.schedule is not None and not context.training:
            decision = Decision(self.schedule.choices_at(context.positions_BT))
        else:
            decision, state = self._ask(h_BTD, context, state)
            if self.training_schedule is not None and context.training:
                decision = Decision(self.training_schedule.choices_at(context.positions_BT))
        decision = self._seen(_force(decision, context, self.choices), context)
        self._record(decision, context)
        return decision, state

    def _ask(
        self, h_BTD: Tensor | Normed, context: Context, state: RouterState | None
    ) -> tuple[Decision, RouterState | None]:
        """The router's decision, held for each segment; its statistics and losses are taken in."""
        own = None if state is None else {k: v for k, v in state.items() if k != HELD}
        ask = self.router.token if isinstance(h_BTD, Normed) else self.router.forward
        decision, own = ask(h_BTD, self._shown(context), own)
        self._check(decision, context)
        held_B = None if state is None else state[HELD]
        if self.segment is not None:
            decision, held_B = _hold(decision, context, self.segment, held_B)
        self._collect(decision, context)
        if state is None:
            return decision, None
        assert held_B is not None
        return decision, {**(own or {}), HELD: held_B}

    def watches(self, context: Context) -> bool:
        """Whether the router must see the model's output on these tokens."""
        return self.feedback and (context.training or self.schedule is None)

    def init_state(self, batch: int, device: torch.device | str | None) -> RouterState:
        held_B = torch.full((batch,), -1, dtype=torch.int64, device=device)
        return {**self.router.init_state(batch, device), HELD: held_B}

    def observe(self, output_BTD: Tensor, context: Context, state: RouterState | None) -> RouterState | None:
        """Show a feedback router the model's output; what it records in training reaches ``after_step``."""
        own = None if state is None else {k: v for k, v in state.items() if k != HELD}
        taken = Recorder(open=_counts(context))
        shown = self._shown(context)
        own = self.router.observe(output_BTD, shown.at(recorder=taken) if context.training else shown, own)
        self._pending += [statistics for _, statistics in taken.records]
        return None if state is None else {**(own or {}), HELD: state[HELD]}

    def take_statistics(self) -> list[Mapping[str, Any]]:
        """What is waiting for ``after_step``, taken out."""
        pending, self._pending = self._pending, []
        return pending

    def give_statistics(self, pending: list[Mapping[str, Any]]) -> None:
        """Let this wait for ``after_step``."""
        self._pending = list(pending)

    def after_step(self) -> None:
        """Commit the statistics of the step and forget them."""
        if pending := self.take_statistics():
            self.router.after_step(pending)

    def site(self) -> Site:
        return Site(self.name, self.kind, self.choices, self.router_name, self.segment, self.names)

    def _shown(self, context: Context) -> Context:
        """The context as the router sees it: labels are shown to one that declares that it looks at them."""
        return context if self.needs_labels or context.labels_BT is None else context.at(labels_BT=None)

    def _collect(self, decision: Decision, context: Context) -> None:
        if _counts(context) and decision.statistics:
            self._pending.append(decision.statistics)
        for name, loss in decision.losses.items():
            context.add_loss(name, loss)

    def _record(self, decision: Decision, context: Context) -> None:
        if context.recorder is None or not context.recorder.open:
            return
        asked_BT = context.counted_BT()
        counts_N = torch.zeros(self.choices, dtype=torch.int64, device=decision.choice_BT.device)
        counts_N.scatter_add_(0, decision.choice_BT.flatten(), asked_BT.flatten().to(torch.int64))
        tokens = {"choice_BT": decision.choice_BT, "asked_BT": asked_BT} if context.detailed else {}
        context.record(counts=counts_N, **tokens)

    def _check(self, decision: Decision, context: Context) -> None:
        if isinstance(decision, Thresholded):
            # Not compared yet, and not for the sake of this.
            shape, dtype = decision.parts_BTP.shape[:-1], torch.int64
        else:
            shape, dtype = decision.choice_BT.shape, decision.choice_BT.dtype
        if shape != context.positions_BT.shape or dtype != torch.int64:
            raise ValueError(
                f"router {self.router_name!r} at {context.site!r} returned choices of shape {tuple(shape)} and "
                f"{dtype}; it must return int64 of shape {tuple(context.positions_BT.shape)}"
            )

    def _seen(self, decision: Decision, context: Context) -> Decision:
        """The decision with its span, where the host can look without waiting for a device.

        On a device the range is checked by conformance.
        """
        if decision.choice_BT.device.type != "cpu":
            return decision
        low, high = (int(bound) for bound in decision.choice_BT.aminmax())
        if low < 0 or high >= self.choices:
            raise ValueError(
                f"router {self.router_name!r} at {context.site!r} chose outside 0..{self.choices - 1}: {low}..{high}"
            )
        return Decision(
            decision.choice_BT,
            decision.weight_BTN,
            decision.losses,
            decision.statistics,
            (low, high),
            decision.taken_BT,
        )


@dataclass(frozen=True)
class RouterSizes:
    """What every site of one model shares."""

    d_model: int
    vocab: int
    parts: Parts


def forced_choice(context: Context) -> Tensor | None:
    """The forced choices of a site, by its full name or by its name without the depth."""
    if not context.forced:
        return None
    exact = context.forced.get(context.site)
    return exact if exact is not None else context.forced.get(without_depth(context.site))


def segment_starts(context: Context, segment: int) -> Tensor:
    """bool BT: valid tokens at which a segment (or a document) starts."""
    starts_BT = context.positions_BT % segment == 0
    return starts_BT if context.valid_BT is None else starts_BT & context.valid_BT


def _counts(context: Context) -> bool:
    return context.training and context.recorder is not None and context.recorder.open


def _hold(
    decision: Decision, context: Context, segment: int, held_B: Tensor | None
) -> tuple[Decision, Tensor]:
    """Replace every choice by that of its segment's first token, or by the one held from an earlier piece."""
    choice_BT = decision.choice_BT
    starts_BT = segment_starts(context, segment)
    if held_B is None:
        held_B = torch.full_like(choice_BT[:, 0], -1)
    # A row with nothing held decides at its first token, wherever its positions begin.
    starts_BT = torch.cat([starts_BT[:, :1] | (held_B < 0)[:, None], starts_BT[:, 1:]], dim=1)
    index_T = torch.arange(choice_BT.shape[1], device=choice_BT.device)
    last_BT = torch.where(starts_BT, index_T, -1).cummax(dim=1).values
    from_BT = last_BT.clamp(min=0)
    inside_BT = last_BT >= 0
    chosen_BT = torch.where(inside_BT, choice_BT.gather(1, from_BT), held_B[:, None])
    weight_BTN = decision.weight_BTN
    if weight_BTN is not None:
        N = weight_BTN.shape[-1]
        inherited_BTN = _one_hot(chosen_BT, N).to(weight_BTN.dtype)
        gathered_BTN = weight_BTN.gather(1, from_BT[..., None].expand(-1, -1, N))
        weight_BTN = torch.where(inside_BT[..., None], gathered_BTN, inherited_BTN)
    return Decision(chosen_BT, weight_BTN, decision.losses, decision.statistics), chosen_BT[:, -1]


def _force(decision: Decision, context: Context, choices: int) -> Decision:
    """Impose forced choices; the segment's held choice (kept apart) is not touched."""
    forced_BT = forced_choice(context)
    if context.recorded and isinstance(decision, Thresholded):
        choice_BT, taken_BT = thresholds.decide(decision.parts_BTP, decision.tau, forced_BT)
        return Decision(choice_BT, taken_BT=taken_BT)
    if forced_BT is None:
        return decision
    free_BT = forced_BT < 0
    choice_BT = torch.where(free_BT, decision.choice_BT, forced_BT)
    weight_BTN = decision.weight_BTN
    if weight_BTN is not None:
        imposed_BTN = _one_hot(choice_BT, choices).to(weight_BTN.dtype)
        weight_BTN = torch.where(free_BT[..., None], weight_BTN, imposed_BTN)
    return Decision(choice_BT, weight_BTN, decision.losses, decision.statistics)


def _one_hot(choice_BT: Tensor, choices: int) -> Tensor:
    """bool BTN. Choices that are out of range are looked at later, once for all that may decide."""
    return choice_BT[..., None] == torch.arange(choices, device=choice_BT.device)
