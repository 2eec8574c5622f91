"""Taking up a study: what the last driver left is stored, queued again or ended, before anything new begins."""

from __future__ import annotations

from crossbreed.core import genome
from crossbreed.core.errors import PluginError, UnknownName
from crossbreed.core.genome import Architecture
from crossbreed.core.search import agenda
from crossbreed.core.search.executors.base import Spool
from crossbreed.core.search.intake import Intake, run_folder
from crossbreed.core.search.others import Others, is_a_helpers
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage import Repository


def settle(
    repository: Repository, study_id: int, setting: StudySetting, spool: Spool, intake: Intake
) -> None:
    """Store what workers kept on disk, and queue what dead ones held. The driver's lease must be held."""
    held = {r.lease: r for r in repository.runs(study_id, agenda.HELD) if r.lease}
    helpers = {r.lease for r in held.values() if is_a_helpers(r)}
    for lease in spool.leases():
        run = held.get(lease)
        if lease in helpers:
            continue
        if run is not None:
            folder = run_folder(setting.file.name, run.number, run.seed)
            intake.take_all(run.id, run.number, folder, lease, spool.read(lease))
        spool.discard(lease)
    Others(repository, study_id).take_back()
    _retire_old_versions(repository, study_id, setting)


def _retire_old_versions(repository: Repository, study_id: int, setting: StudySetting) -> None:
    """End runs that were queued under another version of a plugin: going on would mix two models in one run."""
    for run in repository.runs(study_id, agenda.WAITING):
        trial = repository.trial(study_id, run.number)
        architecture = genome.parse(Architecture, trial.genome, f"trial {run.number}")
        if run.identities != _identities(setting, architecture, run.key):
            cause = (
                "a plugin of this candidate has changed since the run was queued; its results would not pool"
            )
            repository.set_run_state(run.id, "failed", cause=cause)


def _identities(setting: StudySetting, architecture: Architecture, key: str) -> dict[str, str]:
    """Versions of a waiting run's plugins. Raises PluginError when one is gone: with it back, the run goes on."""
    try:
        return setting.identities(architecture)
    except UnknownName as error:
        raise PluginError(
            f"run {key} is still to be trained, but one of its plugins was removed: {error} Install it again or name it "
            f"with --plugin; results that are stored can be read without it."
        ) from error
