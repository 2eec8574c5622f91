"""The state of a whole model between pieces of text: mixer states, router states, and where each row stands."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from crossbreed.core.contracts.mixer import State


@dataclass(frozen=True)
class ModelState:
    """Everything a model carries from one piece to the next.

    mixers:     site ``"stage.block.depth.sublayer"`` -> that mixer's state; every depth has its own.
    routers:    site -> the router's own state and the choice held for the current segment.
    position_B: int64, the position of the next token of each row.
    """

    mixers: dict[str, State]
    routers: dict[str, State]
    position_B: Tensor

    def mixer_bytes(self) -> int:
        """Bytes of all mixer state, as allocated (equal to the ledger's when room was reserved exactly)."""
        return sum(tensor_bytes(t) for state in self.mixers.values() for t in state.values())

    def copy(self) -> ModelState:
        """The same in memory of its own."""

        def copied(states: dict[str, State]) -> dict[str, State]:
            return {site: {name: t.clone() for name, t in own.items()} for site, own in states.items()}

        return ModelState(copied(self.mixers), copied(self.routers), self.position_B.clone())

    def select(self, rows_B: Tensor) -> ModelState:
        """The state of some rows, copied (for beam search, or to drop finished rows)."""
        count = self.position_B.shape[0]

        def pick(states: dict[str, State]) -> dict[str, State]:
            return {
                site: {
                    n: t[rows_B] if t.dim() and t.shape[0] == count else t.clone() for n, t in state.items()
                }
                for site, state in states.items()
            }

        return ModelState(pick(self.mixers), pick(self.routers), self.position_B[rows_B])


class Carry:
    """The states of one forward pass, by site: read and replaced as blocks run, frozen into a ModelState at the end.

    Without a state to start from nothing is kept, except pass-scoped states, which live for one stage's pass and are
    shared by all its depths.
    """

    def __init__(self, state: ModelState | None) -> None:
        self._mixers = None if state is None else dict(state.mixers)
        self._routers = None if state is None else dict(state.routers)
        self._scratch: dict[str, State] = {}

    def mixer(self, site: str) -> State | None:
        shared = self._scratch.get(without_depth(site))
        if shared is not None:
            return shared
        return None if self._mixers is None else self._mixers[site]

    def keep_mixer(self, site: str, state: State | None) -> None:
        if state is None:
            return
        if without_depth(site) in self._scratch:
            self._scratch[without_depth(site)] = state
        elif self._mixers is not None:
            self._mixers[site] = state

    def router(self, site: str) -> State | None:
        return None if self._routers is None else self._routers[site]

    def keep_router(self, site: str, state: State | None) -> None:
        if self._routers is not None and state is not None:
            self._routers[site] = state

    def begin_pass(self, scratch: dict[str, State]) -> None:
        """Set the pass-scoped states of a stage, keyed by site without depth."""
        self._scratch = scratch

    def end_pass(self) -> None:
        self._scratch = {}

    def freeze(self, position_B: Tensor) -> ModelState:
        assert self._mixers is not None
        assert self._routers is not None
        return ModelState(self._mixers, self._routers, position_B)


def without_depth(site: str) -> str:
    """``"stage.block.depth.kind"`` -> ``"stage.block.kind"``; ``"stage.depth.halt"`` -> ``"stage.halt"``."""
    head, _, kind = site.rpartition(".")
    return f"{head.rpartition('.')[0]}.{kind}" if head else site


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements; scalars on the host are bookkeeping and count nothing."""
    return tensor.element_size() * tensor.numel() if tensor.dim() else 0


def fresh_positions(batch: int, device: torch.device | str | None) -> Tensor:
    return torch.zeros(batch, dtype=torch.int64, device=device)
