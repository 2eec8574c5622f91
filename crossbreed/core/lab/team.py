"""One trial's training on several devices of a host: a process for each, all taking the same steps on their rows of every batch.

This process is the first of them. It alone says when a step is taken, evaluates, times, and writes records and checkpoints; the
others wait for its word, and end when it does, however that ends.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError, Diverged
from crossbreed.core.lab import fresh
from crossbreed.core.lab.environment import pick_device
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.shard import Shard
from crossbreed.core.lab.train import Trainer

Stop = Callable[[], bool]
Advance = Callable[[int, Stop], bool]

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
HOST, ANY_PORT = "127.0.0.1", 0
PATIENCE = timedelta(minutes=10)
"""Longest that one device waits for another within a step: the first ones may compile kernels."""
POLL_S = 0.05
LAST_WORDS_S = 5.0
"""Longest wait for a process to end after what it shared with this one has broken."""
HERE = f"{__name__}:follow"


class MemberLost(Exception):
    """A process that trained with this one is gone without a word, which is no fault of the candidate's."""


@dataclass(frozen=True)
class Member:
    """What one further process is told: its job, with its own device, and where it meets the others.

    checkpoint: the one in the job's artefacts that training goes on from, or None.
    """

    job: Job
    shard: Shard
    port: int
    checkpoint: str | None


def check(job: Job, batch: int) -> None:
    """Raise ConfigError unless the job's batch can be shared by its devices, and they are there."""
    if batch % job.devices:
        raise ConfigError(
            f"train.batch is {batch}, but a trial is trained on {job.devices} devices; each takes as many rows, so the batch must "
            "be divisible by search.devices_per_trial"
        )
    device = pick_device(job.device)
    if device.type == "cuda":
        last = (device.index or 0) + job.devices
        if last > torch.cuda.device_count():
            raise ConfigError(
                f"search.devices_per_trial is {job.devices}, but this process sees {torch.cuda.device_count()} CUDA devices"
            )


@contextmanager
def training(job: Job, trainer: Trainer, checkpoint: str | None, stop: Stop) -> Iterator[Advance]:
    """What takes ``trainer`` up to a number of tokens: it alone, or together with a process for each further device of the job.

    ``checkpoint``: what the trainer was loaded from. Raises fresh.Stopped when ``stop`` says so before all have begun.
    ``Advance`` raises MemberLost, and the error of a process that had one.
    """
    if job.devices == 1:
        yield trainer.advance
        return
    team = _Team(job, trainer)
    try:
        team.gather(checkpoint, stop)
        yield team.advance
    finally:
        team.end()


class _Team:
    """The first process's view of the others."""

    def __init__(self, job: Job, trainer: Trainer) -> None:
        self.job, self.trainer = job, trainer
        self.members: list[fresh.Process] = []
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None

    def gather(self, checkpoint: str | None, stop: Stop) -> None:
        """Start the others and wait until all have built what they train."""
        size = self.job.devices
        store = _store(ANY_PORT, size)
        for rank in range(1, size):
            member = Member(_job_of(self.job, rank), Shard(rank, size), store.port, checkpoint)
            self.members.append(fresh.Process(HERE, member))
        ready = [_ready(rank) for rank in range(1, size)]
        while not store.check(ready):
            self._check()
            if stop():
                raise fresh.Stopped(
                    f"run {self.job.key} was asked to stop before all of its devices had begun"
                )
            time.sleep(POLL_S)
        _meet(store, Shard(0, size), self.trainer)
        if self.trainer.device.type == "cuda":
            self._watcher = threading.Thread(target=self._free_from_the_dead, daemon=True)
            self._watcher.start()

    def advance(self, tokens: int, stop: Stop) -> bool:
        """``Trainer.advance`` of all."""

        def asked() -> bool:
            self._check()
            if stop():
                return True
            self._tell("step")
            return False

        self._tell("train")
        try:
            done = self.trainer.advance(tokens, asked)
        except Exception as error:
            # A collective fails where another process has ended, which says itself why.
            theirs = isinstance(error, RuntimeError) and not isinstance(error, torch.OutOfMemoryError)
            self._check(LAST_WORDS_S if theirs else 0.0, error)
            raise
        finally:
            self._tell("pause")
        self._check()
        return done

    def end(self) -> None:
        """End the others, whatever they do, and be alone again."""
        self._over.set()
        for member in self.members:
            member.end()
        # Before the connections: a recorded pass holds on to them, and they would wait for it.
        self.trainer.share(Shard())
        if self._watcher is not None:
            self._watcher.join()
        if dist.is_initialized():
            if self.trainer.device.type == "cuda":
                dist.distributed_c10d._abort_process_group()
            else:
                dist.destroy_process_group()

    def _tell(self, word: str) -> None:
        for member in self.members:
            # One that has ended is found by ``_check``.
            with suppress(BrokenPipeError):
                member.tell(word)

    def _check(self, wait_s: float = 0.0, cause: Exception | None = None) -> None:
        """Raise what has ended a process, if one has ended, or does so within some seconds."""
        deadline = time.monotonic() + wait_s
        while True:
            for rank, member in enumerate(self.members, start=1):
                if not member.ended():
                    continue
                if member.died:
                    raise MemberLost(
                        f"the process of device {rank} of {self.job.devices} of run {self.job.key} is gone"
                    ) from cause
                member.result()
            if time.monotonic() >= deadline:
                return
            time.sleep(POLL_S)

    def _free_from_the_dead(self) -> None:
        """On a GPU, what waits for a process that has ended would wait for ever: give up what they share."""
        while not self._over.wait(POLL_S):
            if any(member.ended() for member in self.members):
                dist.distributed_c10d._abort_process_group()
                return


def follow(member: Member) -> None:
    """A further process: take a step whenever the first one says so. It ends with it."""
    from crossbreed.core.lab.trial import trainer_of

    # Of what may be warned the first process warns.
    warnings.simplefilter("ignore")
    device = pick_device(member.job.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(member.job.threads)
    trainer = trainer_of(member.job)
    if member.checkpoint is not None:
        trainer.load(Artefacts.at(member.job.artefacts), member.checkpoint)
    shard = member.shard
    store = _store(member.port, shard.size)
    store.set(_ready(shard.rank), "")
    _meet(store, shard, trainer)
    while True:
        if fresh.told.get() == "train":
            # The first process sees the same numbers, and ends the run for them.
            with suppress(Diverged):
                trainer.advance(trainer.recipe.tokens, lambda: fresh.told.get() != "step")


def _store(port: int, size: int) -> Any:
    """Where the processes find each other: made by the first of them, which takes any port, and joined by the others."""
    return dist.TCPStore(  # type: ignore[attr-defined]
        HOST, port, size, is_master=port == ANY_PORT, wait_for_workers=False, timeout=PATIENCE
    )


def _meet(store: Any, shard: Shard, trainer: Trainer) -> None:
    backend = BACKENDS[trainer.device.type]
    dist.init_process_group(backend, store=store, rank=shard.rank, world_size=shard.size, timeout=PATIENCE)
    trainer.share(shard)


def _job_of(job: Job, rank: int) -> Job:
    """The job of a further process, which has a device of its own and measures nothing."""
    device = torch.device(job.device)
    if device.type == "cuda":
        device = torch.device("cuda", (device.index or 0) + rank)
    return replace(job, device=str(device), devices=1, memory=False, phases=("train",))


def _ready(rank: int) -> str:
    return f"ready/{rank}"
