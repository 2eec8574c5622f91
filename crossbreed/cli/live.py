"""The view of a running search on stderr: a live panel on a terminal, plain lines elsewhere, JSON lines beside ``--json``."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from crossbreed.cli.fronts import candidate_table
from crossbreed.cli.notes import Failure, failures
from crossbreed.cli.output import duration, json_line, log_console, si
from crossbreed.core.search.candidates import Objectives
from crossbreed.core.search.progress import Progress

PLAIN_SECONDS = 15.0
"""Without a terminal, a line at least this often while anything changes, and at once when a run ends."""

ORDER = ("running", "leased", "queued", "preempted", "done")


class SearchView:
    """``with SearchView(...) as view: drive(..., on_progress=view.show)``.

    A run that fails is said at once, with its cause; what had failed at the first moment shown is an earlier session's.
    """

    def __init__(
        self,
        study: str,
        objectives: Objectives,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        as_json: bool = False,
    ) -> None:
        self.study, self.objectives, self.as_json = study, objectives, as_json
        self.console = console or log_console()
        self._clock = clock
        self._live: Live | None = None
        self._said = ""
        self._said_at = -PLAIN_SECONDS
        self._key: tuple[bool, bool, int] | None = None
        self._known: set[Failure] | None = None
        self._unsaid: list[Failure] = []

    def __enter__(self) -> SearchView:
        if self.console.is_terminal and not self.as_json:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show a moment of the search."""
        found = failures(progress.candidates)
        new = [] if self._known is None else [f for f in found if f not in self._known]
        self._known = set(found)
        self._unsaid += new
        if not self.as_json:
            for failure in self._unsaid:
                self.console.print(failure.sentence, markup=False, soft_wrap=True)
            self._unsaid = []
        if self._live is not None:
            self._live.update(self.panel(progress), refresh=True)
        else:
            self._say(progress)

    def panel(self, progress: Progress) -> Group:
        """The whole view."""
        head = Table.grid(padding=(0, 2))
        head.add_row(
            f"[bold]{escape(self.study)}[/]",
            progress.activity,
            ProgressBar(total=max(1, progress.trial_limit), completed=progress.trials, width=24),
            f"{progress.trials}/{progress.trial_limit} candidates",
            f"{si(progress.tokens_per_s)} tokens/s",
            f"{duration(progress.elapsed_s)} elapsed",
            f"{duration(progress.eta_s)} left",
        )
        objectives = self.objectives.over([c.row for c in progress.candidates])
        running = ", ".join(progress.running) or "-"
        front = candidate_table(progress.front, objectives, "Front so far", cost=False)
        volume = f"front of {len(progress.front)}, hypervolume {si(progress.hypervolume, 4)}"
        words = (f"{states_words(progress)}; {volume}", f"running: {running}", *progress.waiting)
        return Group(head, *map(Text, words), front)

    def _say(self, progress: Progress) -> None:
        text = f"{progress.activity}: {progress.trials}/{progress.trial_limit} candidates, {states_words(progress)}"
        text += f"; {len(progress.front)} on the front, hypervolume {si(progress.hypervolume, 4)}"
        text += "".join(f"; {cause}" for cause in progress.waiting)
        ended = sum(count for state, count in progress.states.items() if state not in ORDER[:-1])
        key = (progress.activity == "stopping", bool(progress.waiting), ended)
        due = self._clock() - self._said_at >= PLAIN_SECONDS or key != self._key
        if not self._unsaid and (text == self._said or not due):
            return
        self._said, self._said_at, self._key = text, self._clock(), key
        if self.as_json:
            self.console.print(json_line("progress", self._data(progress)), markup=False, soft_wrap=True)
            self._unsaid = []
            return
        pace = f"{si(progress.tokens_per_s)} tokens/s, {duration(progress.eta_s)} left"
        self.console.print(f"[{duration(progress.elapsed_s)}] {text}; {pace}", markup=False)

    def _data(self, progress: Progress) -> dict[str, Any]:
        return {
            "study": self.study,
            "activity": progress.activity,
            "states": dict(progress.states),
            "trials": progress.trials,
            "trial_limit": progress.trial_limit,
            "infeasible": progress.infeasible,
            "running": list(progress.running),
            "waiting": list(progress.waiting),
            "failures": [failure._asdict() for failure in self._unsaid],
            "front": [c.row.number for c in progress.front],
            "hypervolume": progress.hypervolume,
            "tokens_per_s": progress.tokens_per_s,
            "elapsed_s": progress.elapsed_s,
            "eta_s": progress.eta_s,
        }


def states_words(progress: Progress) -> str:
    """Runs by state, those at work first, and infeasible candidates."""
    shown = sorted(progress.states, key=lambda s: (ORDER.index(s) if s in ORDER else len(ORDER), s))
    words = [f"{progress.states[state]} {state}" for state in shown if progress.states[state]]
    words += [f"{progress.infeasible} infeasible"] if progress.infeasible else []
    return "runs: " + (", ".join(words) or "none yet")
