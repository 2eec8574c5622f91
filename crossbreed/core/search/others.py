"""Other processes that work on a study: helpers that joined it, and what their leases mean for whoever looks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from crossbreed.core.search import agenda
from crossbreed.storage import Driver as Process
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow
from crossbreed.storage.studies import now

DRIVER, TIMER, HELPER = "driver", "timer", "helper"
"""The roles in which processes sign the leases of runs; the timer is the driver, while it times."""

HELP = "help"
"""Kind of the events in which a helper says how many runs it can work on at once; none when it leaves."""


@dataclass
class Others:
    """Runs of one study that are held by processes other than this one."""

    repository: Repository
    study_id: int
    here: Process = field(default_factory=Process.here)

    def take_back(self, mine: Collection[str] = ()) -> tuple[list[RunRow], list[RunRow]]:
        """Queue again what nobody will finish: what living helpers hold, and what was taken back. For the driver alone.

        ``mine``: leases of this driver's own jobs. Of the others a run is nobody's unless a helper holds it that is not known
        to be dead and whose lease has not expired. It is no attempt of the run's.
        """
        living, taken = [], []
        for run in self.repository.runs(self.study_id, agenda.HELD):
            if is_a_helpers(run):
                living.append(run)
            elif run.lease not in mine:
                self.repository.set_run_state(run.id, "queued")
                taken.append(run)
                payload = {
                    "trial": run.number,
                    "seed": run.seed,
                    "cause": f"its holder is gone: {run.worker}",
                }
                self.repository.add_event(self.study_id, "taken_back", payload)
        return living, taken

    def slots(self) -> int:
        """Runs that helpers can work on at once, those of the dead left out where we can tell."""
        said = {
            e.payload["helper"]: e.payload["slots"] for e in self.repository.events_of(self.study_id, HELP)
        }
        signed = {signature: Process.read(signature) for signature in said}
        gone = {
            signature for signature, found in signed.items() if found is None or found[1].certainly_dead()
        }
        return sum(slots for signature, slots in said.items() if signature not in gone)

    def work_here(self) -> bool:
        """Whether a helper holds a run on this host, so that nothing can be timed alone."""
        held = self.repository.runs(self.study_id, agenda.HELD)
        hosts = [signed[1].host for run in held if (signed := Process.read(run.worker)) and is_a_helpers(run)]
        return self.here.host in hosts


def timed_here(repository: Repository, study_id: int, here: Process) -> bool:
    """Whether the driver times a run on this host, or is about to."""
    held = repository.runs(study_id, agenda.HELD)
    return any(
        (signed := Process.read(run.worker)) and signed[0] == TIMER and signed[1].host == here.host
        for run in held
    )


def is_a_helpers(run: RunRow) -> bool:
    """Whether a helper that may be alive holds the run."""
    signed = Process.read(run.worker)
    if signed is None or signed[0] != HELPER or signed[1].certainly_dead():
        return False
    return run.lease_expires_at is None or run.lease_expires_at > now()
