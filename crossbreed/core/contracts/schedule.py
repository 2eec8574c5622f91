"""A schedule: a choice for every position of a document, written down rather than decided."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from crossbreed.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Schedule:
    """``switches`` are (first position, choice), the first at position 0; each holds until the next.

    Switches need not fall on a segment's start. Raises ConfigError unless positions rise from 0 and choices are not negative.
    """

    switches: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        positions = [position for position, _ in self.switches]
        if positions[:1] != [0] or any(a >= b for a, b in pairwise(positions)):
            raise ConfigError(f"a schedule's positions must begin at 0 and rise, got {positions}")
        for position, choice in self.switches:
            if choice < 0:
                raise ConfigError(
                    f"a schedule takes choice {choice} from position {position}; choices are 0 and up"
                )

    @staticmethod
    def always(choice: int) -> Schedule:
        """The same choice everywhere."""
        return Schedule(((0, choice),))

    def check(self, choices: int, where: str) -> None:
        """Raise ConfigError for a choice that a site with ``choices`` of them does not have."""
        for position, choice in self.switches:
            if choice >= choices:
                raise ConfigError(
                    f"{where} takes choice {choice} from position {position}, but the site has choices 0 to {choices - 1}"
                )

    def choices_at(self, positions_BT: Tensor) -> Tensor:
        """int64 choices of any shape of positions."""
        import torch

        (_, first), *later = self.switches
        choice_BT = torch.full_like(positions_BT, first, dtype=torch.int64)
        # Numbers rather than tensors of them: nothing is copied to a device, which a recorded pass could not do.
        for begin, choice in later:
            choice_BT = choice_BT.masked_fill(positions_BT >= begin, choice)
        return choice_BT

    def shares(self, choices: int, tokens: int) -> tuple[float, ...]:
        """Share of each choice in a text of ``tokens`` tokens. Raises ConfigError for a switch that lies beyond it."""
        last = self.switches[-1][0]
        if last >= tokens:
            raise ConfigError(
                f"the schedule switches at position {last}, but the text has {tokens} tokens; it must switch before its end"
            )
        self.check(choices, "the schedule")
        ends = [position for position, _ in self.switches[1:]] + [tokens]
        counts = [0] * choices
        for (begin, choice), end in zip(self.switches, ends, strict=True):
            counts[choice] += end - begin
        return tuple(count / tokens for count in counts)
