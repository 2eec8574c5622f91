"""Errors a user can act on. Every message is a sentence with the name, the value and the rule it broke."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CrossbreedError(Exception):
    """Root of all errors raised on purpose. The command line prints the message without a traceback."""

    exit_code = 1


class ConfigError(CrossbreedError, ValueError):
    """Bad input: a field, file, name or value that breaks a stated rule. Exit code 2."""

    exit_code = 2


class UnknownName(ConfigError):
    """A plugin, preset, field or run that does not exist; the message names the nearest one that does."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name = kind, name
        known = sorted(known)
        super().__init__(
            f"unknown {kind} {name!r}{nearest(name, known)}; known: {', '.join(known) or 'none'}.{hint}"
        )


class MissingCapability(ConfigError):
    """A legal name in a place it cannot work, such as a non-causal router in evaluation."""


class PluginError(ConfigError):
    """A plugin the user asked for could not be loaded or registered."""


class InfeasibleBudget(ConfigError):
    """No legal point meets the budget; the message gives the nearest point and the quantity that cannot move."""


class StudyBusy(ConfigError):
    """Another driver holds this study."""


class StorageError(ConfigError):
    """The database cannot be used as it is: newer version, read-only place, not ours."""


class Diverged(CrossbreedError):
    """A loss or a gradient stopped being finite during training."""


class WrongBackend(CrossbreedError):
    """A backend computes something else than the reference on this device, so that nothing it gives can be trusted."""


class OutOfMemory(CrossbreedError):
    """The device or the host ran out of memory during a trial."""


class NotFinite(CrossbreedError):
    """A score or a measurement is infinite or no number: on a front it could not be beaten, or not be compared."""


class DiskFull(CrossbreedError):
    """A checkpoint could not be written, tried again and again."""


class DatabaseLost(StorageError):
    """The database does not answer any more, or not yet; what was to be done may be done again later."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for a close match, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
