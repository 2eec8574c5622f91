"""Whose code may run: loading a plugin runs it with the user's rights.

Built-ins and the files that a user names always run. Installed plugins run too, unless all are kept out or only those of
some distributions are let in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from crossbreed.core.errors import ConfigError

NO_THIRD_PARTY = "CROSSBREED_NO_THIRD_PARTY"
"""Environment variable: true keeps all installed plugins out."""
PLUGINS_ALLOW = "CROSSBREED_PLUGINS_ALLOW"
"""Environment variable: the distributions whose plugins may run, separated by commas. Unset lets in all; empty none."""

_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Trust:
    """Which installed plugins may run. ``allow``: names of distributions, however spelt, or None for all."""

    third_party: bool = True
    allow: tuple[str, ...] | None = None

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Trust:
        """What the two variables say. Raises ConfigError for a switch that is neither on nor off."""
        said = environment.get(NO_THIRD_PARTY, "").strip().lower() or "0"
        if said not in (*_YES, *_NO):
            raise ConfigError(
                f"environment variable {NO_THIRD_PARTY} is {said!r}; it must be one of {', '.join((*_YES, *_NO))}."
            )
        listed = environment.get(PLUGINS_ALLOW)
        return Trust(said in _NO, None if listed is None else distributions(listed))

    def permits(self, distribution: str) -> bool:
        """Whether plugins of a distribution may run; one that is installed without a name only where all may."""
        if not self.third_party:
            return False
        return self.allow is None or plain(distribution) in map(plain, self.allow)

    @property
    def rule(self) -> str:
        """Why something is kept out, as a clause."""
        if not self.third_party:
            return "third-party plugins are off"
        return f"only {', '.join(self.allow or ()) or 'no distribution'} may run"

    def environment(self) -> dict[str, str]:
        """The variables that say the same to another process."""
        said = {NO_THIRD_PARTY: "0" if self.third_party else "1"}
        return said if self.allow is None else {**said, PLUGINS_ALLOW: ",".join(self.allow)}


def distributions(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def plain(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
