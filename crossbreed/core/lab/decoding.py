"""Decoding by steps that a device replays: recorded once for a number of texts, and kept for the next texts."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from crossbreed.core.lab.constants import Constants
from crossbreed.core.lab.steps import NotRecorded, RecordedStep, StaticStep
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import ModelState

STEPS: dict[str, type[StaticStep]] = {"cuda": RecordedStep}
"""Type of device -> what decodes on it. Elsewhere tokens are launched kernel by kernel."""
LAUNCHED = 16
"""Tokens of so many texts that are launched before a step for them is recorded, which takes about as long as they."""


class Decoding:
    """Steps of one model, by how many texts go on together.

    slots:  tokens of the longest text, for which every state has room; room: the most that are decoded of one.
    detail: see ``StaticStep``.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        slots: int,
        room: int,
        seed: int = 0,
        dtype: str = "float32",
        detail: bool = False,
    ) -> None:
        self.model, self.slots, self.room = model, slots, room
        self.seed, self.dtype, self.detail = seed, dtype, detail
        self._kind = STEPS.get(model.embedding.weight.device.type)
        self._constants = Constants(model)
        self._steps: dict[int, StaticStep] = {}
        self._launched: Counter[int] = Counter()

    def step(self, state: ModelState, rows_B: Tensor, sites: Sequence[str]) -> StaticStep | None:
        """One that stands at a copy of ``state``; None where the next token is to be launched.

        sites: where choices are forced, the same each time. A model that cannot be recorded is launched, which a warning says.
        """
        rows = len(rows_B)
        if self._kind is None:
            return None
        if rows in self._steps:
            self._steps[rows].load(state, rows_B)
            return self._steps[rows]
        self._launched[rows] += 1
        if self._launched[rows] <= LAUNCHED:
            return None
        try:
            self._steps[rows] = self._kind(
                self.model,
                state.copy(),
                room=self.room,
                forced=sites,
                rows_B=rows_B,
                seed=self.seed,
                dtype=self.dtype,
                constants=self._constants,
                detail=self.detail,
            )
        except NotRecorded as why:
            self._kind = None
            warnings.warn(f"tokens are decoded kernel by kernel: {why}", RuntimeWarning, stacklevel=2)
            return None
        return self._steps[rows]
