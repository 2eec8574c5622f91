"""The peak of device memory while a candidate trains, in a process that has done nothing else.

A worker that has trained before still holds what its allocator kept and its libraries loaded; a peak there would be of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from crossbreed.core import genome
from crossbreed.core.lab import fresh
from crossbreed.core.lab.environment import backends, device_name, policy
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.operating_points import OWN
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.records import Measurement, Profiled
from crossbreed.core.lab.train import Trainer

STEPS = 3
"""Steps trained: the first allocates the optimiser's moments, and the last is like any later one."""
HERE = f"{__name__}:training_peak"


def measured(job: Job, stop: Callable[[], bool]) -> dict[str, int]:
    """The peak of a job's training, in bytes by kind, from a process of its own; of one device with its rows, where several train.

    What this process's allocator keeps for later is given back first. Raises OutOfMemory when the candidate does not fit.
    """
    torch.cuda.empty_cache()
    recipe = genome.parse(Recipe, job.recipe, "train").shared(job.devices).model_dump(mode="json")
    alone = replace(job, memory=False, captured=False, devices=1, recipe=recipe)
    found: dict[str, int] = fresh.call(HERE, alone, stop=stop)
    return found


def training_peak(job: Job) -> dict[str, int]:
    """Bytes ``allocated`` for tensors and ``reserved`` by the allocator, at their peak over STEPS steps. For a new process."""
    from crossbreed.core.lab.trial import trainer_of

    trainer = trainer_of(job)
    device, steps = trainer.device, min(STEPS, trainer.total_steps)
    torch.cuda.reset_peak_memory_stats(device)
    trainer.advance(steps * trainer.recipe.batch * trainer.task.length, lambda: False)
    torch.cuda.synchronize(device)
    return {
        "allocated": torch.cuda.max_memory_allocated(device),
        "reserved": torch.cuda.max_memory_reserved(device),
    }


def report(peak: dict[str, int], trainer: Trainer, job: Job) -> Profiled:
    """A job's peak as measurements: ``training_peak_allocated_bytes`` and ``training_peak_reserved_bytes``."""
    return Profiled(
        OWN.name,
        {},
        tuple(
            Measurement(
                metric=f"training_peak_{kind}_bytes",
                unit="bytes",
                phase="train",
                batch=trainer.recipe.shared(job.devices).batch,
                tokens=trainer.task.length,
                dtype=trainer.recipe.dtype,
                device=device_name(trainer.device),
                policy=policy(job.backend),
                compiled=False,
                median=float(most),
                q1=float(most),
                q3=float(most),
                repeats=1,
                threads=torch.get_num_threads(),
                backends=backends(trainer.model),
            )
            for kind, most in peak.items()
        ),
    )
