"""A router under check: at the sites it states, with weights that speak and thresholds that have met some text.

Legend: B rows, T tokens, D model width, N choices, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from crossbreed.core import genome
from crossbreed.core.conformance.rule import Broken
from crossbreed.core.conformance.subject import Subject
from crossbreed.core.contracts.capabilities import RouterCapabilities, SiteKind
from crossbreed.core.contracts.context import Context, Recorder
from crossbreed.core.contracts.router import Decision, RouterState
from crossbreed.core.contracts.task import IGNORE
from crossbreed.core.errors import ConfigError
from crossbreed.core.model.routing import RoutedSite, RouterSizes, segment_starts
from crossbreed.core.model.seeding import seeded
from crossbreed.core.ops.entropy import measured_output, normalised_entropy

D_MODEL, VOCAB = 16, 24
SITES: dict[SiteKind, tuple[str, str]] = {
    "gate": ("0.0.gate", "0.0.0.gate"),
    "halt": ("0.halt", "0.0.halt"),
    "mode": ("mode", "mode"),
}
"""Of each kind the name of a site, and of its call at depth 0."""
LOUD = 0.3
"""Noise added to every parameter, so that scores are far from flat and what starts at zero speaks."""
STEPS = 4
"""Training steps before a router is judged, so that running thresholds lie among what they are compared with."""
LAST_BITS = 4 * torch.finfo(torch.float32).eps
"""Relative noise under which a choice must stand to be counted as firm: two correct ways of computing may differ so much."""


@dataclass(frozen=True)
class Place:
    """Where a router may stand, and how many choices it has there."""

    kind: SiteKind
    choices: int

    def __str__(self) -> str:
        return f"{self.kind} with {self.choices} choices"


@dataclass(frozen=True)
class Pass:
    """One pass over a text, outside training: its context, what was chosen, and which choices are firm."""

    h_BTD: Tensor
    at: Context
    choice_BT: Tensor
    firm_BT: Tensor


class RouterSubject(Subject):
    """A registered router. Everything is drawn from fixed seeds; equal calls give equal results."""

    kind = "router"

    def __init__(self, *arguments: Any, **named: Any) -> None:
        # What many cases start from is made once; nobody but this class sees the originals.
        self._places: dict[str, list[Place]] = {}
        self._sites: dict[tuple[str, Place], RoutedSite] = {}
        self._passes: dict[tuple[Any, ...], Pass] = {}
        super().__init__(*arguments, **named)

    @property
    def able(self) -> RouterCapabilities:
        found: RouterCapabilities = self.descriptor.capabilities
        return found

    def config(self, settings: Mapping[str, Any]) -> Any:
        made = super().config(settings)
        if settings and not self.places(settings):
            raise ConfigError(f"no site can be built with the settings {dict(settings)}")
        return made

    def places(self, settings: Mapping[str, Any]) -> list[Place]:
        """Sites at which these settings are legal: with two choices, and at mode with three where it can tell them apart."""
        key = repr(settings)
        if key in self._places:
            return self._places[key]
        most = self.able.max_choices or 3
        found = self._places[key] = []
        for kind in self.able.sites:
            for choices in (2, 3) if kind == "mode" and most > 2 else (2,):
                try:
                    self.bare(settings, Place(kind, choices))
                except ConfigError:
                    continue
                found.append(Place(kind, choices))
        return found

    def bare(self, settings: Mapping[str, Any], place: Place, *, seed: int = 0) -> RoutedSite:
        """The router at its site as its constructor leaves it, in float64 from here on."""
        gene = genome.Router(name=self.name, params=dict(settings))
        sizes = RouterSizes(D_MODEL, VOCAB, self.registry)
        with seeded(seed):
            return RoutedSite(gene, SITES[place.kind][0], place.kind, place.choices, sizes).double().eval()

    def site(self, settings: Mapping[str, Any], place: Place) -> RoutedSite:
        """A router of its own: loud weights, and a few training steps behind it where it takes part in training."""
        key = repr(settings), place
        if key not in self._sites:
            site = self._sites[key] = self.bare(settings, place)
            generator = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for parameter in site.parameters():
                    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                    parameter.add_(noise.to(parameter.dtype) * LOUD)
            for step in range(0 if self.able.fitted else STEPS):
                at = self.context(site, 4, 32, phase="train", step=step)
                self.train(site, self.text(4, 32, seed=step + 50), at)
                site.after_step()
        return copy.deepcopy(self._sites[key])

    def train(self, site: RoutedSite, h_BTD: Tensor, at: Context) -> tuple[Decision, dict[str, Tensor]]:
        """(decision, losses by name) of one training pass."""
        recorder = at.recorder or Recorder()
        at = at.at(recorder=recorder)
        decision, _ = site(h_BTD, at, None)
        if site.watches(at):
            site.observe(h_BTD.detach(), at, None)
        return decision, dict(recorder.losses)

    def text(self, rows: int, tokens: int, *, seed: int = 2) -> Tensor:
        """h_BTD whose sizes differ widely from token to token, so that the model is here sure and there unsure."""
        generator = torch.Generator().manual_seed(seed)
        h_BTD = torch.randn(rows, tokens, D_MODEL, generator=generator, dtype=torch.float64)
        size_BT = torch.rand(rows, tokens, generator=generator, dtype=torch.float64) * 8 - 5
        return h_BTD * (2.0**size_BT)[..., None]

    def labels(self, rows: int, tokens: int, *, seed: int = 3) -> Tensor:
        """labels_BT, about half of them to be ignored."""
        generator = torch.Generator().manual_seed(seed)
        labels_BT = torch.randint(VOCAB, (rows, tokens), generator=generator)
        return labels_BT.where(torch.rand(rows, tokens, generator=generator) < 0.5, IGNORE)

    def context(
        self, site: RoutedSite, rows: int, tokens: int, *, starts: Sequence[int] = (), **fields: Any
    ) -> Context:
        """Tokens from position 0 on; ``starts`` are first tokens of further documents. Labels are there where the model
        would show them: in training, and to a router that states that it needs them."""
        positions, document = torch.arange(tokens), torch.zeros(tokens, dtype=torch.int64)
        for start in starts:
            document[start:] += 1
            positions[start:] = torch.arange(tokens - start)
        training = fields.get("phase") == "train"
        labels_BT = self.labels(rows, tokens) if training or self.able.needs_labels else None
        known: dict[str, Any] = {
            "positions_BT": positions.repeat(rows, 1),
            "row_id_B": torch.arange(rows) + 5,
            "document_BT": document.repeat(rows, 1) if len(starts) else None,
            "site": SITES[site.kind][1],
            "depths": 2,
            "seed": 11,
            "labels_BT": labels_BT,
            "loss_mask_BT": labels_BT != IGNORE if training and labels_BT is not None else None,
            "output_entropy": lambda h_BTD: normalised_entropy(h_BTD, head(h_BTD)),
            "output_measure": lambda h_BTD, measure: measured_output(h_BTD, head(h_BTD), measure),
        }
        return Context(**{**known, **fields})

    @torch.no_grad()
    def decide(
        self,
        site: RoutedSite,
        h_BTD: Tensor,
        at: Context,
        cuts: Sequence[int] = (),
        state: RouterState | None = None,
    ) -> tuple[Tensor, RouterState]:
        """(choice_BT, state after) of pieces between ``cuts``, outside training; those of one token are decoded.

        A router that must see the model's output is asked segment by segment, as in a model; the output is ``h`` here.
        """
        held = site.init_state(len(h_BTD), None) if state is None else state
        chosen = []
        for start, stop in pairwise([0, *cuts, h_BTD.shape[1]]):
            for a, b in pairwise(self._pieces(site, at, start, stop)):
                piece = at.slice(a, b)
                if b - a == 1:
                    piece = piece.at(phase="decode")
                decision, after = site(h_BTD[:, a:b], piece, held)
                if decision.weight_BTN is not None:
                    raise Broken(f"soft weights outside training, in {piece.phase} of {b - a} tokens")
                if site.watches(piece):
                    after = site.observe(h_BTD[:, a:b], piece, after)
                if after is None:
                    raise Broken("a router that is given a state must return one")
                held = after
                chosen.append(decision.choice_BT)
        return torch.cat(chosen, 1), held

    def passed(
        self, settings: Mapping[str, Any], place: Place, rows: int, tokens: int, starts: Sequence[int] = ()
    ) -> Pass:
        """One pass of a fresh router over a text, in one piece.

        A choice is firm where it stands when the last bits of the input change; others may fall either way.
        """
        key = repr(settings), place, rows, tokens, tuple(starts)
        if key not in self._passes:
            generator = torch.Generator().manual_seed(4)
            site, h_BTD = self.site(settings, place), self.text(rows, tokens)
            at = self.context(site, rows, tokens, starts=starts)
            choice_BT, _ = self.decide(site, h_BTD, at)
            firm_BT = torch.ones_like(choice_BT, dtype=torch.bool)
            for _ in range(2):
                noise_BTD = torch.randn(h_BTD.shape, generator=generator, dtype=h_BTD.dtype)
                near_BTD = h_BTD * (1 + LAST_BITS * noise_BTD)
                firm_BT &= self.decide(self.site(settings, place), near_BTD, at)[0] == choice_BT
            self._passes[key] = Pass(h_BTD, at, choice_BT, firm_BT)
        return self._passes[key]

    def _pieces(self, site: RoutedSite, at: Context, start: int, stop: int) -> list[int]:
        """Where a piece is cut, so that a router that watches decides at each segment's start."""
        inner: list[int] = []
        if site.watches(at):
            starts_T = segment_starts(at.slice(start, stop), site.segment or 1).any(0)
            inner = [start + int(t) for t in starts_T.nonzero().flatten() if t > 0]
        return [start, *inner, stop]


def head(like: Tensor) -> Tensor:
    """A fixed output head VD."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(VOCAB, D_MODEL, generator=generator, dtype=torch.float64).to(like.dtype)


def rows_of(at: Context, index: Sequence[int]) -> Context:
    """The context of some rows, in that order."""
    pick = list(index)

    def some(x: Tensor | None) -> Tensor | None:
        return None if x is None else x[pick]

    return replace(
        at,
        positions_BT=at.positions_BT[pick],
        row_id_B=at.row_id_B[pick],
        valid_BT=some(at.valid_BT),
        document_BT=some(at.document_BT),
        loss_mask_BT=some(at.loss_mask_BT),
        labels_BT=some(at.labels_BT),
        asked_BT=some(at.asked_BT),
    )


def differing(a_BT: Tensor, b_BT: Tensor, firm_BT: Tensor | None = None) -> int:
    """How many choices differ, of those that are firm; all of them where the shapes do."""
    if a_BT.shape != b_BT.shape:
        return max(a_BT.numel(), b_BT.numel(), 1)
    different_BT = a_BT != b_BT
    return int((different_BT if firm_BT is None else different_BT & firm_BT).sum())
