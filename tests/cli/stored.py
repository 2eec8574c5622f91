"""A small study in a real database, written through the repository as a search writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from crossbreed.cli.genomes import cost_model
from crossbreed.core.budget.matcher import certify
from crossbreed.core.genome import Architecture, digest
from crossbreed.core.host import Host
from crossbreed.core.lab.records import Measurement
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from crossbreed.storage.repository import Repository
from crossbreed.storage.runs import Role

KEY: dict[str, Any] = {"batch": 1, "tokens": 32, "dtype": "float32", "device": "a test (1 thread)"}
SCORES = {0: (0.90, 0.91, 0.92), 1: (0.70, 0.72, 0.74), 2: (0.50, 0.51, 0.52)}
SPEEDS = {0: (1000.0, 1010.0, 1020.0), 1: (2000.0, 2020.0, 2040.0), 2: (900.0, 905.0, 910.0)}


def store_study(db: Path, name: str = "small", neighbours: str = "") -> dict[int, str]:
    """Three candidates, each chosen by one run and reported by three: 0 and 1 on the front, 2 dominated; and an infeasible one.
    -> hashes.

    ``neighbours``: at work while the seeds 1 were timed.
    """
    from crossbreed.cli.init import study_text

    registry = Host.load()
    file = StudyFile.read(yaml.safe_load(study_text(name, registry)))
    setting = resolve(file, registry)
    hashes = {}
    with Repository.open(str(db)) as repository:
        study = repository.create_study(name, file.as_data())
        for number in SCORES:
            hidden = 172 - 4 * number
            data = yaml.safe_load(yaml.safe_dump(file.budget.reference).replace("172", str(hidden)))
            architecture = registry.canonical(
                Architecture.model_validate({"vocab": setting.task.vocab, **data})
            )
            hashes[number] = digest(architecture)
            ledger = cost_model(registry).estimate(architecture, setting.budget.shape.as_shape())
            trial = repository.add_trial(
                study.id,
                hash=hashes[number],
                genome=architecture.model_dump(mode="json"),
                family=f"family {number}",
                origin="reference" if number == 0 else "start",
                certificate=certify(architecture, setting.budget, setting.cost_model),
                ledger=ledger.as_dict(),
            )
            for seed in range(4):
                # Chosen by a run that was luckier than the three that are reported.
                score = 0.99 if seed == 0 else SCORES[number][seed - 1]
                seen = neighbours if seed == 1 else ""
                _store_run(repository, trial.id, seed, score, SPEEDS[number][seed - 1], seen)
        repository.add_trial(
            study.id,
            hash="f" * 64,
            genome={},
            family="dense recurrent",
            origin="start",
            state="infeasible",
            cause="non_embedding_parameters cannot rise without training_flops_per_token",
        )
    return hashes


def _store_run(
    repository: Repository, trial_id: int, seed: int, score: float, speed: float, neighbours: str
) -> None:
    identities = {"mixer:attention": "crossbreed 0.1.0"}
    role: Role = "report" if seed else "tune"
    run = repository.add_run(trial_id, seed, recipe={}, identities=identities, role=role)
    lease = repository.lease_run(run.id, "a test", seconds=60)
    assert lease is not None
    repository.record_started(run.id, lease, {})
    repository.record_evaluation(
        run.id, lease, "own", tokens=32, metrics={"accuracy": score}, score=score, rows=512
    )
    decode = Measurement(
        metric="decode_tokens_per_s",
        unit="tokens/s",
        phase="decode",
        policy="best",
        compiled=False,
        median=speed,
        q1=speed - 1,
        q3=speed + 1,
        repeats=7,
        neighbours=neighbours,
        **KEY,
    )
    repository.record_profile(run.id, lease, "own", [decode])
    repository.record_finished(run.id, lease, "done")
