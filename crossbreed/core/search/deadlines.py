"""How long a job may take for its next rung, evaluation or profile before its worker is taken to hang."""

from __future__ import annotations

from dataclasses import dataclass, field

from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Curve, Evaluated, Profiled, Record, RungDone, Started
from crossbreed.core.search.study_setting import StudySetting

LEAST_S = 600.0
"""What every rung, evaluation and profile may take: imports, kernels that are tuned, a slow disk."""
FACTOR = 20.0
"""How many times the expected time a rung may take: a candidate is no failure for being slow."""
SLOWEST_FLOPS = 1e9
"""Training FLOPs a second that any machine does, for as long as nothing was measured."""

STEPS = (Started, RungDone, Evaluated, Profiled)


@dataclass
class Deadlines:
    """Deadlines of one study's jobs: ``search.deadline_s``, or a generous multiple of what its jobs have shown to take."""

    setting: StudySetting
    _slowest: float = 0.0
    _resumed: dict[str, int] = field(default_factory=dict)

    def is_step(self, record: Record) -> bool:
        """Whether a record says that the job came a step further, from which the next deadline counts."""
        return isinstance(record, STEPS)

    def heard(self, job: Job, record: Record, elapsed_s: float) -> None:
        """Learn seconds per token from what a job reports ``elapsed_s`` seconds after it began."""
        train = self.setting.file.train
        if isinstance(record, Started):
            self._resumed[job.lease] = record.resumed_step * train.batch * self.setting.task.length
        elif isinstance(record, Curve) and record.points:
            tokens = record.points[-1].tokens - self._resumed.get(job.lease, 0)
            if tokens > 0:
                self._slowest = max(self._slowest, elapsed_s / tokens)

    def seconds(self, flops_per_token: float, *, started: bool = True) -> float:
        """The time until the next step of a job that trains at so many FLOPs.

        Before it has ``started`` a job imports plugins and builds its model, which no setting about rungs makes shorter.
        """
        limit = self.setting.file.search.deadline_s
        if limit is not None:
            return limit if started else max(limit, LEAST_S)
        per_token = self._slowest or flops_per_token / SLOWEST_FLOPS
        return LEAST_S + FACTOR * self.setting.file.train.tokens * per_token
