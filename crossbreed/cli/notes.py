"""What a table of candidates cannot say in its cells: why runs failed, and which are of a plugin file's older text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

if TYPE_CHECKING:
    from crossbreed.core.search.candidates import Candidate
    from crossbreed.core.search.plugin_files import OlderText
    from crossbreed.storage.rows import CandidateRow

FAILED = ("failed", "diverged", "out_of_memory", "lost")
"""States of runs, and of candidates without any, that ended for a reason of their own."""


class Failure(NamedTuple):
    """A run that failed, or with ``seed`` None a candidate that never came to one."""

    number: int
    seed: int | None
    family: str
    state: str
    cause: str

    @property
    def place(self) -> str:
        return f"candidate {self.number}" + ("" if self.seed is None else f", seed {self.seed}")

    @property
    def sentence(self) -> str:
        return f"{self.place} ({self.family}) {state_words(self.state)}: {self.cause}"


def failures(candidates: Iterable[Candidate]) -> list[Failure]:
    """Everything that failed, by candidate and seed, with its cause on one line."""
    found = []
    for row in {candidate.row.number: candidate.row for candidate in candidates}.values():
        if row.seeds:
            found += [_failure(row, s.seed, s.state, s.cause) for s in row.seeds if s.state in FAILED]
        elif row.state in FAILED:
            found.append(_failure(row, None, row.state, row.cause))
    return found


def _failure(row: CandidateRow, seed: int | None, state: str, cause: str | None) -> Failure:
    return Failure(row.number, seed, row.family, state, " ".join((cause or "no cause is known").split()))


def state_words(state: str) -> str:
    """How a run ended, as a verb."""
    return {"out_of_memory": "ran out of memory", "lost": "was lost"}.get(state, state)


def print_notes(console: Console, shown: Iterable[Candidate], older: Iterable[OlderText] = ()) -> None:
    """Under a table of candidates: each cause once with the runs that ended by it, then older texts of plugin files."""
    by_cause: dict[tuple[str, str], list[str]] = {}
    for failure in failures(shown):
        by_cause.setdefault((failure.state, failure.cause), []).append(failure.place)
    for (state, cause), places in by_cause.items():
        console.print(f"{'; '.join(places)} {state_words(state)}: {cause}", markup=False, soft_wrap=True)
    for text in older:
        for sentence in text.sentences:
            console.print(sentence, markup=False, soft_wrap=True)
