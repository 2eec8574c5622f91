"""Errors a user can act on. Every message is a sentence with the name, the value and the rule it broke."""

from __future__ import annotations

import difflib
import re
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


class MissingExtra(ConfigError, ImportError):
    """A package that is installed with one of the extras only; the message names the extra."""


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


class ArtefactsLost(StorageError, OSError):
    """The store of artefacts cannot be reached, or does not take or give what it should."""


class DatabaseLost(StorageError):
    """The database does not answer any more, or not yet; what was to be done may be done again later."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for a close match, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


_RULES = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"Field required", "is required"),
        (r"Input should be a valid integer.*", "must be a whole number"),
        (r"Input should be a valid number.*", "must be a number"),
        (r"Input should be a valid boolean.*", "must be true or false"),
        (r"Input should be a valid string.*", "must be text"),
        (r"Input should be a valid (tuple|list).*", "must be a list"),
        (r"Input should be a valid dictionary.*", "must be a mapping"),
        (r"Input should be greater than or equal to (.*)", r"must be at least \1"),
        (r"Input should be less than or equal to (.*)", r"must be at most \1"),
        (r"Input should be greater than (.*)", r"must be above \1"),
        (r"Input should be less than (.*)", r"must be below \1"),
        (r"Input should be (.*)", r"must be \1"),
        (r"\w+ should have at (least|most) (\d+ \w+).*", r"must have at \1 \2"),
        (r"(?:Value|Assertion) error, (.*)", r"\1"),
    )
]


def rule_words(message: str) -> str:
    """The rule that a value broke, in our words: ``"must be at least 1"`` for pydantic's, any other message as it is."""
    for pattern, words in _RULES:
        found = pattern.fullmatch(message.removesuffix("."))
        if found:
            return found.expand(words)
    return message.removesuffix(".")


def field_words(name: str, rule: str) -> str:
    """A field's path with the rule that its value broke: ``"train.batch must be at least 1"``, ``"stages: a router ..."``."""
    last = name.rsplit(".", 1)[-1]
    if not name or rule.startswith(f"{name} "):
        return rule
    if rule.startswith(f"{last} must "):
        return f"{name}{rule.removeprefix(last)}"
    return f"{name} {rule}" if rule.startswith(("must ", "is required")) else f"{name}: {rule}"
