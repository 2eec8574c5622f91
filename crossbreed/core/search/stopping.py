"""Rules that end a session before the study is done: hours, trials, tokens, and a front that has stopped growing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crossbreed.core.search.board import Board
from crossbreed.core.search.growth import GrowthLog, finished
from crossbreed.core.search.study_file import SearchSection, StallSection
from crossbreed.storage import Repository

Rule = Literal["max_hours", "max_trials", "max_tokens", "stall", "exhausted"]


@dataclass(frozen=True)
class Limits:
    """The limits of a session: those of the study file and of the command line, whichever is lower.

    hours:  of this session. tokens: trained by the study, over all runs. trials: candidates that the study may hold beside the
            reference; ``limited`` when that is fewer than it asks for. stall: see ``StallSection``.
    """

    trials: int
    limited: bool
    hours: float | None = None
    tokens: int | None = None
    stall: StallSection | None = None

    @staticmethod
    def of(
        search: SearchSection,
        *,
        hours: float | None = None,
        trials: int | None = None,
        tokens: int | None = None,
    ) -> Limits:
        stop = search.stop
        allowed = min(n for n in (search.trials, stop.max_trials, trials) if n is not None)
        return Limits(
            allowed,
            allowed < search.trials,
            min((h for h in (hours, stop.max_hours) if h is not None), default=None),
            min((t for t in (tokens, stop.max_tokens) if t is not None), default=None),
            stop.stall,
        )


class Stopping:
    """Asks the rules. Those of hours and tokens begin nothing more; the others propose nothing more, and what was begun is
    finished."""

    def __init__(self, limits: Limits, repository: Repository, study_id: int) -> None:
        self.limits, self.repository, self.study_id = limits, repository, study_id
        self.halted: Rule | None = None
        self.winding_down: Rule | None = None

    def look(self, board: Board, growth: GrowthLog, elapsed_s: float) -> None:
        """Apply the rules to the study as it stands; a rule that has ended a session stays in force for it."""
        limits = self.limits
        if self.halted is None and limits.hours is not None and elapsed_s > 3600 * limits.hours:
            self.halted = "max_hours"
        if self.halted is None and limits.tokens is not None:
            spent = self.repository.trained_tokens(self.study_id)
            self.halted = "max_tokens" if spent >= limits.tokens else None
        stall = limits.stall
        if self.winding_down is None and stall is not None:
            still = growth.stalled(finished(board.rows), stall.trials, stall.share)
            self.winding_down = "stall" if still else None

    def sentence(self, rule: Rule) -> str:
        """What ended a session, for its user."""
        limits = self.limits
        if rule == "max_hours":
            return f"Ended by max_hours: {limits.hours:g} hours of this session are over."
        if rule == "max_tokens":
            return f"Ended by max_tokens: the study has trained {limits.tokens:,} tokens or more; a higher limit goes on."
        if rule == "max_trials":
            return f"Ended by max_trials: the study holds {limits.trials} candidates beside its reference; a higher limit goes on."
        if rule == "stall" and limits.stall is not None:
            stall = limits.stall
            return (
                f"Ended by stall: the last {stall.trials} finished candidates made the front's hypervolume less than "
                f"{100 * stall.share:g}% larger."
            )
        return "The space or the list is exhausted: nothing new can be proposed."
