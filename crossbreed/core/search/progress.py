"""What a live view shows of a running search."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from crossbreed.core.lab.records import Curve, Record, Started, Waiting
from crossbreed.core.search.candidates import Candidate

Activity = Literal["training", "profiling", "paused", "stopping", "finished", "stopped"]


@dataclass(frozen=True)
class Progress:
    """A moment of a search.

    states:       runs by state. trials / trial_limit: candidates beside the reference, proposed and allowed.
    infeasible:   candidates that no legal dimensions bring into the budget.
    waiting:      for each job that stands still, what it waits for and who has that.
    candidates:   all candidates with objectives; those on the front are marked.
    tokens_per_s: training tokens per second over the last half minute, all workers together.
    eta_s:        estimated seconds to the end, None before anything has ended.
    hypervolume:  of the front, from the study's fixed reference point; 0 before there is one.
    """

    activity: Activity
    states: Mapping[str, int]
    trials: int
    trial_limit: int
    infeasible: int
    candidates: tuple[Candidate, ...]
    running: tuple[str, ...]
    tokens_per_s: float
    elapsed_s: float
    eta_s: float | None
    waiting: tuple[str, ...] = ()
    hypervolume: float = 0.0

    @property
    def front(self) -> tuple[Candidate, ...]:
        return tuple(c for c in self.candidates if c.on_front)


@dataclass
class Pace:
    """Counts training tokens and ended jobs as they are reported, over a sliding window.

    waiting: lease -> what its job waits for, until the job says anything else.
    """

    window_s: float = 30.0
    begun: float = field(default_factory=time.monotonic)
    job_seconds: float = 0.0
    jobs: int = 0
    waiting: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def heard(self, lease: str, record: Record, tokens_per_step: int) -> None:
        """A job reports something."""
        self.waiting.pop(lease, None)
        if isinstance(record, Waiting):
            self.waiting[lease] = record.cause
        elif isinstance(record, Started):
            self.resumed(lease, record.resumed_step * tokens_per_step)
        elif isinstance(record, Curve) and record.points:
            self.trained(lease, record.points[-1].tokens)

    def trained(self, lease: str, tokens: int) -> None:
        """A job reports ``tokens`` training tokens in all."""
        before = self._seen.get(lease)
        self._seen[lease] = tokens
        if before is not None:
            self._recent.append((time.monotonic(), max(0, tokens - before)))

    def resumed(self, lease: str, tokens: int) -> None:
        """A job starts from ``tokens`` training tokens, which are not this session's work."""
        self._seen.setdefault(lease, tokens)

    def ended(self, lease: str, seconds: float) -> None:
        self._seen.pop(lease, None)
        self.waiting.pop(lease, None)
        self.job_seconds += seconds
        self.jobs += 1

    def tokens_per_s(self) -> float:
        at = time.monotonic()
        while self._recent and self._recent[0][0] < at - self.window_s:
            self._recent.popleft()
        span = min(self.window_s, at - self.begun)
        return sum(tokens for _, tokens in self._recent) / span if span > 0 else 0.0

    def eta_s(self, jobs_left: int, slots: int) -> float | None:
        """Seconds for ``jobs_left`` more jobs at the mean of those that have ended, ``slots`` at a time."""
        return self.job_seconds / self.jobs * jobs_left / slots if self.jobs else None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begun
