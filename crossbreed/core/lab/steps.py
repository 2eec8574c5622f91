"""One decoded token of every row, again and again: in memory that stays where it is, and recorded for a device to replay.

Decoding is bound by the host, which launches hundreds of kernels a token that take microseconds each. Recorded as one CUDA graph
they are launched at once. Everything that changes between tokens then lies in memory that the kernels read and write: the tokens,
forced choices, positions and the model's state. What follows from the weights alone is computed once (``constants``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context, Recorder
from crossbreed.core.contracts.mixer import State
from crossbreed.core.errors import ConfigError, CrossbreedError
from crossbreed.core.lab.constants import Constants
from crossbreed.core.lab.environment import precision
from crossbreed.core.lab.waiting import waiting_forbidden
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import ModelState

REHEARSED = 3
"""Tokens of a short text that are decoded launched and replayed before a recording is trusted."""
TOLERANCE = 0.02
"""Allowed norm of the difference between the logits of a replayed step and of the same step launched, as a share of theirs."""


class NotRecorded(CrossbreedError):
    """Why a step cannot be recorded, in a sentence."""


class StaticStep:
    """Reads one token of every row in memory that stays.

    ``state`` is taken over: its tensors are overwritten, and have room for ``room`` more tokens. forced: sites whose choices are
    given with each token. rows_B, seed: what random routers draw by. detail: what a detailed recorder keeps is to be had after
    each token.
    """

    def __init__(
        self,
        model: LanguageModel,
        state: ModelState,
        *,
        room: int,
        forced: Sequence[str] = (),
        rows_B: Tensor | None = None,
        seed: int = 0,
        dtype: str = "float32",
        constants: Constants | None = None,
        detail: bool = False,
    ) -> None:
        if model.needs_labels:
            raise NotRecorded("a router looks at the labels, which change from token to token")
        self.model, self.sites, self.seed, self.dtype = model, tuple(forced), seed, dtype
        self.device = state.position_B.device
        rows = len(state.position_B)
        self.inputs_NB = torch.full((1 + len(self.sites), rows), -1, dtype=torch.int64, device=self.device)
        self.inputs_NB[0] = 0
        self.rows_B = torch.arange(rows, device=self.device) if rows_B is None else rows_B.clone()
        self.constants = constants or Constants(model)
        self.room = self._left = room
        self._state = state
        self._recorder = Recorder(open=detail, detail=detail)

    @property
    def state(self) -> ModelState:
        """As it is now; overwritten by the next token."""
        return self._state

    @torch.inference_mode()
    def load(self, state: ModelState, rows_B: Tensor | None = None) -> None:
        """Go on from a copy of another state of the same shape, with the room there was at the beginning; and with other rows."""
        new = _tensors(state)
        _copy([(old, new[name]) for name, old in _tensors(self._state).items()])
        if rows_B is not None:
            self.rows_B.copy_(rows_B)
        self._left = self.room

    @torch.inference_mode()
    def __call__(self, inputs_NB: Tensor) -> Tensor:
        """logits_BV of what follows; overwritten by the next token.

        inputs_NB: int64; the tokens, then the choices forced at each site (-1: free). Raises ConfigError where the room ends.
        """
        if not self._left:
            raise ConfigError(f"the state has room for {self.room} tokens, and they were read")
        self._left -= 1
        self.inputs_NB.copy_(inputs_NB, non_blocking=True)
        return self._advance()

    @torch.inference_mode()
    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """What the model recorded about the last token, copied."""
        found = self._recorder.records
        kept = [
            (t, torch.empty_like(t)) for _, facts in found for t in facts.values() if isinstance(t, Tensor)
        ]
        _copy([(new, old) for old, new in kept])
        copies = iter(new for _, new in kept)
        return [
            (site, {name: next(copies) if isinstance(x, Tensor) else x for name, x in facts.items()})
            for site, facts in found
        ]

    def _advance(self) -> Tensor:
        logits_BV, after = self._compute()
        _copy(self._changed(after))
        return logits_BV

    def _compute(self) -> tuple[Tensor, ModelState]:
        """(logits_BV, the state after the token): nothing is changed but the slot of a cache that the token belongs to."""
        self._recorder = replace(self._recorder, losses=[], records=[])
        with precision(self.dtype, self.device, cached=False), self.constants:
            tokens_B1 = self.inputs_NB[0][:, None]
            h_B1D, after = self.model(tokens_B1, self._context(tokens_B1), self._state)
            assert after is not None
            return self.model.logits(h_B1D[:, 0]), after

    def _context(self, tokens_B1: Tensor) -> Context:
        forced = {site: self.inputs_NB[1 + i][:, None] for i, site in enumerate(self.sites)}
        context = self.model.context(
            tokens_B1,
            phase="decode",
            seed=self.seed,
            rows_B=self.rows_B,
            forced=forced,
            state=self._state,
            recorder=self._recorder,
        )
        return context.at(recorded=True)

    def _changed(self, after: ModelState) -> list[tuple[Tensor, Tensor]]:
        """(tensor of the state, what it is to be) where they are not one and the same."""
        new = _tensors(after)
        if {name: t.shape for name, t in new.items()} != {
            n: t.shape for n, t in _tensors(self._state).items()
        }:
            raise NotRecorded("a token changes the shape of the state")
        return [(old, new[name]) for name, old in _tensors(self._state).items() if old is not new[name]]


class RecordedStep(StaticStep):
    """The same on a CUDA device by replaying one recorded pass.

    Raises NotRecorded where the model waits for the device in a token, or replayed tokens give other logits than launched ones;
    that is looked at on a short text of its own, too (``rehearse``), since what a recording holds fast shows in later tokens only.
    """

    def __init__(
        self, model: LanguageModel, state: ModelState, *, room: int, rehearse: bool = True, **settings: Any
    ) -> None:
        super().__init__(model, state, room=room, **settings)
        if self.device.type != "cuda":
            raise NotRecorded(
                f"kernels are recorded on CUDA devices, but the model is on {self.device.type!r}"
            )
        self._graph, self._replayed = torch.cuda.CUDAGraph(), 0
        try:
            with torch.inference_mode():
                self._record()
                if rehearse:
                    self._rehearse()
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ConfigError) as error:
            raise NotRecorded(str(error).splitlines()[0]) from error

    @property
    @torch.inference_mode()
    def state(self) -> ModelState:
        for number, added in self._counters:
            number.add_(added, alpha=self._replayed)
        self._replayed = 0
        return self._state

    def load(self, state: ModelState, rows_B: Tensor | None = None) -> None:
        super().load(state, rows_B)
        self._replayed = 0

    def _advance(self) -> Tensor:
        self._graph.replay()
        self._replayed += 1
        return self._logits_BV

    def _record(self) -> None:
        # Kernels are compiled and chosen, constants computed; then the very same must not wait for the device.
        self._compute()
        with waiting_forbidden():
            wanted_BV, after = self._compute()
        changed = self._changed(after)
        # Numbers on the host are counters: what one token adds, every replayed one adds.
        self._counters = [(old, new - old) for old, new in changed if not old.is_cuda]
        kept = [(old, old.clone()) for old, _ in changed if old.is_cuda]
        with torch.cuda.graph(self._graph):
            self._logits_BV, after = self._compute()
            _copy([(old, new) for old, new in self._changed(after) if old.is_cuda])
        self._graph.replay()
        _copy(kept)
        _check(self._logits_BV, wanted_BV)

    def _rehearse(self) -> None:
        """A short text decoded both ways."""
        settings: dict[str, Any] = {
            "room": REHEARSED,
            "forced": self.sites,
            "rows_B": self.rows_B,
            "seed": self.seed,
            "dtype": self.dtype,
            "constants": self.constants,
        }
        launched = StaticStep(self.model, self._begun(), **settings)
        replayed = RecordedStep(self.model, self._begun(), rehearse=False, **settings)
        inputs_NB = torch.full_like(self.inputs_NB, -1)
        for t in range(REHEARSED):
            inputs_NB[0] = (self.rows_B + 5 * t) % self.model.architecture.vocab
            _check(replayed(inputs_NB), launched(inputs_NB))

    def _begun(self) -> ModelState:
        """The state after two tokens, decoded as always: no first token, which parts may treat in a way of its own."""
        state = self.model.init_state(
            len(self.rows_B), slots=2 + REHEARSED, dtype=getattr(torch, self.dtype), device=self.device
        )
        for token in (0, 1):
            tokens_B1 = torch.full_like(self.rows_B, token)[:, None]
            context = self.model.context(tokens_B1, phase="decode", rows_B=self.rows_B, state=state)
            with precision(self.dtype, self.device, cached=False):
                _, after = self.model(tokens_B1, context, state)
            assert after is not None
            state = after
        return state


def _check(got_BV: Tensor, wanted_BV: Tensor) -> None:
    off, norm = (got_BV - wanted_BV).float().norm(), wanted_BV.float().norm()
    if off > TOLERANCE * norm:
        raise NotRecorded(f"a replayed token gives other logits than a launched one, off by {off / norm:.2g}")


def _tensors(state: ModelState) -> dict[str, Tensor]:
    """All tensors of a state, by unique names."""

    def named(kind: str, states: dict[str, State]) -> dict[str, Tensor]:
        return {f"{kind} {site} {name}": t for site, own in states.items() for name, t in own.items()}

    mixers, routers = named("mixer", state.mixers), named("router", state.routers)
    return {**mixers, **routers, "position": state.position_B}


def _copy(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copies, in few kernels: one for all tensors of a dtype."""
    for kind in {(old.dtype, old.device) for old, _ in pairs}:
        old, new = zip(*(pair for pair in pairs if (pair[0].dtype, pair[0].device) == kind), strict=True)
        torch._foreach_copy_(old, new)
