"""Router analytics of real models, stored with the study that the other tests browse."""

from __future__ import annotations

from pathlib import Path

from crossbreed.core.genome import Architecture
from crossbreed.core.lab.analytics import VERSION, Subject, analyse
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.storage import Repository
from tests.dashboard.material import STUDY, setting

ROWS = 2
GATED, READING, EXPERTS = 4, 3, 5
"""Candidates with a gate, with a mode router, and with experts."""


def store_analytics(database: Path) -> None:
    """What untrained models of the stored genomes decide on the study's own task."""
    with Repository.open(str(database)) as repository:
        study = repository.open_study(STUDY)
        for number in (GATED, READING, EXPERTS):
            detail = repository.trial_detail(study.id, number)
            architecture = Architecture.model_validate(detail.trial.genome)
            model = LanguageModel(architecture, setting().registry)
            found = analyse(Subject(model, setting().task, ROWS))
            run = detail.runs[0].run
            about = {"version": VERSION, "tokens": 300_000, "rows": found.rows}
            assert repository.record_analytics(run.id, run.lease, "own", found.kinds, **about)
