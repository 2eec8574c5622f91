"""The states of trials and runs, and which may follow which."""

from __future__ import annotations

from crossbreed.core.errors import StorageError, UnknownName

STATES = (
    "queued",
    "leased",
    "running",
    "done",
    "off_budget",
    "infeasible",
    "out_of_memory",
    "diverged",
    "failed",
    "preempted",
    "lost",
    "pruned",
)

ENDED = frozenset(
    {"done", "off_budget", "infeasible", "out_of_memory", "diverged", "failed", "lost", "pruned"}
)
"""States nothing follows, except that a lost or pruned run may be queued again."""

_OUTCOMES = frozenset({"done", "off_budget", "out_of_memory", "diverged", "failed", "preempted", "pruned"})

_NEXT: dict[str, frozenset[str]] = {
    # A run may turn out to need nothing more: another setting of its architecture was chosen.
    "queued": frozenset({"leased", "pruned", "failed", "done", "off_budget"}),
    # A lease may end before its first record: a plugin that fails at import, a worker that dies, a stop.
    "leased": frozenset({"running", "queued", "lost"}) | _OUTCOMES,
    "running": frozenset({"queued", "lost"}) | _OUTCOMES,
    "preempted": frozenset({"queued", "leased", "pruned", "failed", "done", "off_budget"}),
    "lost": frozenset({"queued"}),
    # What was pruned before training, when the member that beat it does not hold up.
    "pruned": frozenset({"queued"}),
}


def check_state(state: str) -> None:
    """Raise UnknownName for a word that is not a state."""
    if state not in STATES:
        raise UnknownName("state", state, STATES)


def following(state: str) -> frozenset[str]:
    """The states that may come after ``state``."""
    return _NEXT.get(state, frozenset())


def refusal(key: str, old: str, new: str) -> StorageError:
    """Why run ``key`` cannot go from ``old`` to ``new``."""
    allowed = ", ".join(sorted(following(old))) or "nothing"
    return StorageError(f"run {key} is {old!r} and cannot become {new!r}; after {old!r} comes {allowed}.")
