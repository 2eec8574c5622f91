"""Which backend of a mixer is the fastest where it is to train: each is compared with the reference and timed.

That happens in a process of its own: a kernel's first call may try settings for minutes or take its process with it, and neither
is to end a candidate that another backend serves.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

import torch

from crossbreed.core import genome
from crossbreed.core.contracts.task import IGNORE, Batch
from crossbreed.core.errors import CrossbreedError, MissingCapability, OutOfMemory, WrongBackend
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab import fresh, speeds
from crossbreed.core.lab.candidate import Candidate
from crossbreed.core.lab.environment import backends, device_name, libraries, pick_device, precision
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.lone import VOCAB, lone_mixers, sublayer_of
from crossbreed.core.lab.passes import COMPARED, WARM, CapturedPass, TrainingPass
from crossbreed.core.lab.probe import probe
from crossbreed.core.lab.profile import measure
from crossbreed.core.lab.recipe import Recipe
from crossbreed.core.lab.shard import Shard
from crossbreed.core.lab.speeds import Speed
from crossbreed.core.lab.train import on_device
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import stated_backends

READY_S = 120.0
"""Seconds within which a backend must be compared and timed, its settings found; it is left out else."""
WORTH_FLOPS = 1e16
"""Of a run's training: one of fewer, minutes at what a GPU reaches on small models, would be over before its backends were timed."""
MARGIN = 0.05
"""Share of its time by which another must beat what ``auto`` would take unmeasured: less is not worth other kernels."""
HERE = f"{__name__}:race"


@dataclass(frozen=True)
class Rival:
    """One way to compute a mixer, which ``alone`` holds: ``backend`` is what it is built with, ``served`` what then computes it."""

    alone: Architecture
    backend: str
    served: str


@dataclass(frozen=True)
class Question:
    """What another process is asked: to time rivals in training on a batch of one device, each answer a line of the file ``told``."""

    job: Job
    rivals: tuple[Rival, ...]
    recipe: Recipe
    batch: Batch
    told: str


def contested(job: Job, device: torch.device) -> bool:
    """Whether backends are chosen by their speed: under ``auto``, where there is more than one that computes."""
    return job.backend == "auto" and device.type == "cuda"


def choose(
    candidate: Candidate,
    device: torch.device,
    *,
    waiting: Callable[[str], None] = lambda sentence: None,
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Speed, ...]:
    """The fastest backend of each mixer that has several here, as it was measured first for its settings and this shape; none for
    a run that is too short for it (WORTH_FLOPS).

    What is to be measured now is told to ``waiting``, and the device is held by ``alone`` meanwhile. Rivals that are wrong, or not
    ready in time, are left out with a warning. Raises Stopped when ``stop`` says so.
    """
    job, registry = candidate.job, candidate.registry
    flops = candidate.ledger(candidate.architecture).training_flops_per_token * candidate.recipe.tokens
    if flops < WORTH_FLOPS:
        return ()
    recipe = candidate.recipe.shared(job.devices)
    contests = {
        genome.digest(sublayer_of(one)): rivals
        for one in lone_mixers(candidate.architecture)
        if len(rivals := rivals_of(one, registry, recipe.dtype, device)) > 1
    }
    if not contests:
        return ()
    batch = candidate.task.train_batch(job.seed, 0, recipe.batch)
    keys = {
        sublayer: _key(rivals, registry, job, recipe, batch, device) for sublayer, rivals in contests.items()
    }
    found = {sublayer: speeds.read(key) for sublayer, key in keys.items()}
    new = {sublayer: contests[sublayer] for sublayer, speed in found.items() if speed is None}
    if new:
        mixers = ", ".join(sorted({_mixer(rivals[0]) for rivals in new.values()}))
        waiting(f"backends of {mixers} are tuned and timed on {device_name(device)}, once for these settings")
        if device.type == "cuda":
            torch.cuda.empty_cache()
        with alone():
            asked = [rival for rivals in new.values() for rival in rivals]
            told = iter(_told(job, asked, recipe, batch, stop))
        for sublayer, rivals in new.items():
            answers = [next(told) for _ in rivals]
            speed = _fastest(sublayer, rivals, answers, recipe, batch, device)
            # Memory may have been wanting for what others had of it.
            passing = any(answer.get("for_now") for answer in answers)
            found[sublayer] = speed if passing else _kept(keys[sublayer], speed)
    return tuple(speed for speed in found.values() if speed is not None)


def rivals_of(alone: Architecture, registry: Registry, dtype: str, device: torch.device) -> list[Rival]:
    """Of the mixer that ``alone`` holds: what ``auto`` is unmeasured, then every other backend that can serve it here."""
    found: dict[str, Rival] = {}
    for backend in ("auto", *sorted(stated_backends(sublayer_of(alone), registry))):
        try:
            model = LanguageModel(alone, registry, backend=backend).to(device)
            with precision(dtype, device):
                served = "+".join(sorted(set(backends(model).values()))) or backend
        except MissingCapability:
            continue
        found.setdefault(served, Rival(alone, backend, served))
    return list(found.values())


def race(question: Question) -> None:
    """Time rivals one after the other, and end with the first that fails: what it leaves in a process is not for others.

    The first line that is told says that this process is up. For a new process.
    """
    job, recipe, device = question.job, question.recipe, pick_device(question.job.device)
    torch.set_num_threads(job.threads)
    registry = Host.load(job.plugins, trust=job.trust)
    batch = on_device(question.batch, device)
    with Path(question.told).open("a", encoding="utf-8") as told:

        def tell(answer: dict[str, Any]) -> None:
            told.write(json.dumps(answer) + "\n")
            told.flush()

        tell({})
        for rival in question.rivals:
            try:
                probe(rival.alone, registry, device, backend=rival.backend, dtype=recipe.dtype)
                model = LanguageModel(rival.alone, registry, seed=job.seed, backend=rival.backend).to(device)
                tell({"seconds": pass_seconds(model, recipe, batch, captured=job.captured)})
            except Exception as error:
                # Somebody's kernel may raise anything; that is the answer.
                want = isinstance(error, MemoryError | OutOfMemory | torch.OutOfMemoryError)
                tell({"left_out": f"{type(error).__name__}: {error}".splitlines()[0], "for_now": want})
                return
            del model
            if device.type == "cuda":
                # Whether a pass may be recorded is judged by the most that was ever allocated.
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats(device)


def pass_seconds(
    model: LanguageModel,
    recipe: Recipe,
    batch: Batch,
    *,
    captured: bool,
    clock: Callable[[], float] | None = None,
) -> float:
    """Seconds of a training pass (forward, backward, clipping) as a trainer makes it; the median of several after tuning, recording
    and warming up, by ``clock`` or the device's own events.

    Raises WrongBackend for a loss or a gradient norm that is not finite.
    """
    model.train()
    plain = TrainingPass(model, recipe, 0, Shard())
    device, steps = plain.device, count()
    run = CapturedPass(plain) if captured and device.type == "cuda" else plain
    few = Batch(
        batch.tokens_BT % VOCAB,
        torch.where(batch.labels_BT == IGNORE, IGNORE, batch.labels_BT % VOCAB),
        batch.document_BT,
    )

    def once() -> torch.Tensor:
        numbers_3 = run(few, next(steps)).numbers_3
        model.zero_grad(set_to_none=True)
        model.take_statistics()
        return numbers_3

    for _ in range(WARM + COMPARED):
        once()
    if not bool(once().isfinite().all()):
        raise WrongBackend("its loss or its gradients are not finite at the shape that is trained")
    return measure(once, clock=clock or _clock(device)).median


def _clock(device: torch.device) -> Callable[[], float]:
    """Seconds by events of a CUDA device, each reading once all work before it is done."""
    if device.type != "cuda":
        return time.perf_counter
    begin = torch.cuda.Event(enable_timing=True)
    begin.record()

    def now() -> float:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        mark.synchronize()
        return float(begin.elapsed_time(mark)) / 1e3

    return now


@dataclass
class _Watched:
    """Whether a process that answers line by line is to be ended: when ``stop`` says so, or READY_S after its last line.

    lines: told when it was last looked. late: whether that was so long ago that the next answer is overdue.
    """

    told: Path
    stop: Callable[[], bool]
    lines: int = 0
    since: float = 0.0
    late: bool = False

    def __call__(self) -> bool:
        lines = self.told.read_bytes().count(b"\n")
        if lines != self.lines:
            self.lines, self.since = lines, time.monotonic()
        # What comes before the first line are imports, which are no backend's fault.
        self.late = lines > 0 and time.monotonic() > self.since + READY_S
        return self.late or self.stop()

    def answers(self) -> list[dict[str, Any]]:
        """What was told so far, behind the line that says that it is up."""
        lines = self.told.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines[1:] if line.endswith("\n")]


def _told(
    job: Job, rivals: Sequence[Rival], recipe: Recipe, batch: Batch, stop: Callable[[], bool]
) -> list[dict[str, Any]]:
    """One answer for each rival, in their order: ``seconds``, or why it is ``left_out``, which may be so ``for_now``."""
    answers: list[dict[str, Any]] = []
    while len(answers) < len(rivals):
        rest = tuple(rivals[len(answers) :])
        with tempfile.TemporaryDirectory(prefix="crossbreed-rivals-") as folder:
            told = Path(folder) / "told.jsonl"
            told.touch()
            watched, why = _Watched(told, stop), ""
            try:
                fresh.call(HERE, Question(job, rest, recipe, batch, str(told)), stop=watched)
            except fresh.Stopped:
                if not watched.late:
                    raise
                # It may have answered after all, just before it was ended.
                if len(watched.answers()) < watched.lines:
                    why = f"it was not ready within {READY_S:.0f} s"
            except CrossbreedError as error:
                why = str(error)
            new = watched.answers()
        if why and len(new) < len(rest):
            new.append({"left_out": why})
        answers += new
    return answers


def _fastest(
    sublayer: str,
    rivals: Sequence[Rival],
    answers: Sequence[dict[str, Any]],
    recipe: Recipe,
    batch: Batch,
    device: torch.device,
) -> Speed:
    """The answer for one mixer. Where none could be timed it is built with what ``auto`` takes, which the worker's probe judges."""
    pairs = list(zip(rivals, answers, strict=True))
    seconds = {rival.served: answer["seconds"] for rival, answer in pairs if "seconds" in answer}
    left_out = {rival.served: answer["left_out"] for rival, answer in pairs if "left_out" in answer}
    usual = rivals[0]
    best = min((r for r in rivals if r.served in seconds), key=lambda r: seconds[r.served], default=usual)
    if usual.served in seconds and seconds[best.served] > (1 - MARGIN) * seconds[usual.served]:
        best = usual
    name, mixer = device_name(device), _mixer(usual)
    for served, why in left_out.items():
        warnings.warn(
            f"backend {served!r} of mixer {mixer!r} is left out on {name} in {recipe.dtype}, where {best.served!r} serves: {why}",
            RuntimeWarning,
            stacklevel=2,
        )
    shape = recipe.batch, int(batch.tokens_BT.shape[1])
    return Speed(mixer, sublayer, name, recipe.dtype, *shape, best.backend, seconds, left_out)


def _kept(key: dict[str, Any], speed: Speed) -> Speed:
    try:
        return speeds.keep(key, speed)
    except OSError as error:
        warnings.warn(
            f"how fast backends of mixer {speed.mixer!r} are is not kept, and so will be measured again: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return speed


def _key(
    rivals: Sequence[Rival],
    registry: Registry,
    job: Job,
    recipe: Recipe,
    batch: Batch,
    device: torch.device,
) -> dict[str, Any]:
    """Everything that an answer depends on."""
    alone = rivals[0].alone
    served = [rival.served for rival in rivals]
    return {
        "mixer": genome.digest(alone),
        "plugins": registry.identities(alone),
        "rivals": served,
        "device": device_name(device),
        "dtype": recipe.dtype,
        "batch": list(batch.tokens_BT.shape),
        "packed": batch.document_BT is not None,
        "captured": job.captured,
        "versions": {name: _version(name) for name in ("crossbreed", "torch", "triton")} | libraries(served),
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _mixer(rival: Rival) -> str:
    return sublayer_of(rival.alone).mixer
