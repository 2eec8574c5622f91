"""Schedules for texts of a known length: switches may be counted from the end, and modes named by their reader.

Oryx reads a context in one mode and the prompt with its answer in another (arXiv 2605.28769, section 4.2); where the prompt
begins depends on the text, so such a schedule is an operating point of a trained model and no part of its genome.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from crossbreed.core.contracts.schedule import Schedule
from crossbreed.core.errors import ConfigError, nearest

SWITCH = re.compile(r"(-?)(\d+(?:\.\d+)?)(%?)=(\w+)")
GRAMMAR = (
    "switches such as '0=mamba2,-2.5%=attention': a place (tokens or a share from the start, or with '-' before the end), "
    "'=', and a mode's number or reader"
)


@dataclass(frozen=True)
class Place:
    """Where a switch is, as written: ``860``, ``50%``, ``-16`` (16 tokens before the end) or ``-2.5%``."""

    text: str
    amount: Fraction
    from_end: bool
    share: bool

    def position(self, length: int) -> int:
        """In a text of ``length`` tokens. A last share holds at least one token; a first share is what a last one leaves."""
        amount = self.amount
        if self.from_end:
            return length - math.ceil(amount * length if self.share else amount)
        return math.floor(amount * length if self.share else amount)


@dataclass(frozen=True)
class TextSchedule:
    """(place, mode) pairs; a mode is a number or the name of a reader. ``str`` gives the text that ``parse`` reads."""

    switches: tuple[tuple[Place, str], ...]

    @staticmethod
    def parse(text: str) -> TextSchedule:
        """Raises ConfigError for what is no list of switches, or does not begin at 0."""
        switches = []
        for item in text.split(","):
            found = SWITCH.fullmatch(item)
            whole = found is not None and (bool(found[3]) or "." not in found[2])
            if found is None or not whole:
                raise ConfigError(f"{item!r} of schedule {text!r} is no switch; a schedule is {GRAMMAR}.")
            sign, number, percent, mode = found.groups()
            amount = Fraction(number) / (100 if percent else 1)
            if percent and amount > 1:
                raise ConfigError(f"{item!r} of schedule {text!r} is a share above 100%.")
            switches.append((Place(sign + number + percent, amount, bool(sign), bool(percent)), mode))
        if switches[0][0].text != "0":
            raise ConfigError(f"schedule {text!r} must begin with '0=', the mode of the first token.")
        return TextSchedule(tuple(switches))

    def __str__(self) -> str:
        return ",".join(f"{place.text}={mode}" for place, mode in self.switches)

    @property
    def readers(self) -> tuple[str, ...]:
        """The readers it names, in order."""
        return tuple(mode for _, mode in self.switches if not mode.isdigit())

    def fits(self, modes: Sequence[str]) -> bool:
        """Whether a model with these readers has every mode that the schedule takes."""
        return all(int(m) < len(modes) if m.isdigit() else m in modes for _, m in self.switches)

    def check(self, modes: Sequence[str]) -> None:
        """Raise ConfigError for a mode that is not among these readers."""
        for _, mode in self.switches:
            self._choice(mode, modes)

    def at(self, length: int, modes: Sequence[str]) -> Schedule:
        """For a text of ``length`` tokens and these readers.

        Raises ConfigError for a mode that is not there, and for switches that do not fall into the text in order.
        """
        switches = [
            (self._position(place, length), self._choice(mode, modes)) for place, mode in self.switches
        ]
        for (before, _), (after, _) in pairwise(switches):
            if before >= after:
                raise ConfigError(
                    f"schedule '{self}' switches at position {after} after it did at {before} in a text of {length} tokens; "
                    "its switches must come in order."
                )
        return Schedule(tuple(switches))

    def _position(self, place: Place, length: int) -> int:
        position = place.position(length)
        if not 0 <= position < length:
            raise ConfigError(
                f"schedule '{self}' switches at {place.text!r}, which is not inside a text of {length} tokens."
            )
        return position

    def _choice(self, mode: str, modes: Sequence[str]) -> int:
        if mode in modes:
            return list(modes).index(mode)
        if mode.isdigit() and int(mode) < len(modes):
            return int(mode)
        listed = ", ".join(modes) or "none"
        raise ConfigError(
            f"schedule '{self}' takes mode {mode!r}{nearest(mode, modes)}; the modes are: {listed}."
        )
