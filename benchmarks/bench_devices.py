"""Several devices of one host: one trial that is trained on all of them, and trials that a search spreads over them through Ray.

    python -m benchmarks.bench_devices [PRESET ...] [--devices 2] [--batch 8] [--tokens 2048] [--steps 10] [--repeats 5]
                                       [--seconds 300] [--parts training trials] [--out record.json]

training: tokens/s of the lab's own loop (bfloat16 autocast, recorded steps where they can be) on associative recall in the preset's
vocabulary: on one device; on --devices that share batches of --batch rows, which gives the same run; and on as many with --batch rows
each. Where both train on the same batches their losses are compared.
trials: trials an hour of bench_packing's candidate, --per-gpu at once on each device, by a Ray pool on one device and by one on all. A
turn has as many trials as there are workers.

Every arm is a process that sees its devices only; arms of a part start beside each other, do what is only done once before the first
turn, and take turns. A turn of training is --steps steps, from the word to begin until the last loss is on the host. NVLink's multicast
is off unless NCCL_NVLS_ENABLE says otherwise. Records add up: an arm whose row is there keeps it unless it is measured again.

``--device cpu`` tries the script out: devices are processes then, and the figures say nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch

from benchmarks import bench_packing
from benchmarks.attempts import run_all
from benchmarks.interleaved import never
from benchmarks.record import Record, arguments, made_by, name_of
from crossbreed.core.artefacts import Artefacts
from crossbreed.core.lab import team
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.passes import COMPARED, WARM
from crossbreed.core.lab.records import Record as Told
from crossbreed.core.lab.trial import trainer_of
from crossbreed.core.search.executors.base import Spool
from crossbreed.presets import presets

PARTS = ("training", "trials")
TRIAL = {"tokens": 1_250_000, "d_model": 192, "length": 256, "batch": 32}
"""Of a trial, where bench_packing's SMALL is not taken."""
SAME = ("part", "subject", "arm", "devices", "batch", "tokens")
Turn = Callable[[], dict[str, Any]]


# An arm: a process that does a turn for each line that it reads


@dataclass(frozen=True)
class Arm:
    """What an arm does: ``batch`` rows of ``tokens`` a step of ``subject`` on ``devices``, or trials of ``workers`` at once."""

    part: str
    subject: str
    arm: str
    devices: int
    batch: int
    tokens: int
    workers: int = 0


def serve(arm: Arm, options: argparse.Namespace) -> None:
    """Answer each line of stdin with one JSON line on stdout, after a first one when all is warm."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # Whatever Ray and plugins print must not get in between.
    os.dup2(2, 1)
    with ExitStack() as closing:
        begun = time.perf_counter()
        turn = closing.enter_context(
            training(arm, options) if arm.part == "training" else trials(arm, options)
        )
        turn()
        print(json.dumps({"start_s": time.perf_counter() - begun}), file=answers, flush=True)
        for _ in sys.stdin:
            print(json.dumps(turn()), file=answers, flush=True)


@contextmanager
def training(arm: Arm, options: argparse.Namespace) -> Iterator[Turn]:
    """Turns of one run's steps."""
    cuda, losses = options.device == "cuda", list[float]()
    genome = presets()[arm.subject].build()
    step = arm.batch * arm.tokens
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            study="devices",
            number=0,
            seed=0,
            lease="devices",
            architecture=genome.model_dump(mode="json"),
            task={"name": "recall", "params": {"vocab": genome.vocab, "length": arm.tokens, "eval_items": 8}},
            recipe={
                "tokens": 100_000 * step,
                "batch": arm.batch,
                "lr": 3e-4,
                "log_every": 1_000_000,
                "dtype": "bfloat16" if cuda else "float32",
            },
            artefacts=folder,
            device=options.device,
            devices=arm.devices,
            phases=("train",),
            memory=False,
        )
        trainer = trainer_of(job)

        def hear(record: Told) -> None:
            losses.extend(point.loss_nats for point in getattr(record, "points", ()))

        trainer.emit = hear
        with team.training(job, trainer, None, never) as advance:

            def turn() -> dict[str, Any]:
                begun = time.perf_counter()
                advance(trainer.tokens + options.steps * step, never)
                seconds = time.perf_counter() - begun
                replayed = getattr(trainer._pass, "replaying", False)
                return {"rate": options.steps * step / seconds, "loss_nats": losses[-1], "replayed": replayed}

            # Steps are recorded, and replayed ones compared, before anything is measured.
            advance((WARM + COMPARED + 1) * step, never)
            yield turn


@contextmanager
def trials(arm: Arm, options: argparse.Namespace) -> Iterator[Turn]:
    """Turns of a Ray pool, each of as many trials as it has workers."""
    from crossbreed.core.search.executors.ray import RayExecutor
    from crossbreed.core.search.executors.resources import Resources

    cuda = options.device == "cuda"
    sizes = TRIAL if cuda else bench_packing.SMALL
    packing = argparse.Namespace(device=options.device, patience=options.patience, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        root, count = Path(folder), iter(range(1_000_000))
        share = Resources(gpus=arm.devices / arm.workers if cuda else 0.0)
        pool = RayExecutor(arm.workers, Spool(Artefacts.at(f"{root}/spool")), options.device, resources=share)
        try:
            pool.start()

            def turn() -> dict[str, Any]:
                found = bench_packing.run_turn(pool, packing, root / f"turn-{next(count)}", arm.workers)
                return {"rate": 3600 * arm.workers / found["seconds"]}

            yield turn
        finally:
            pool.shutdown()


# The bench: starts the arms of a part and gives them their turns


@dataclass
class Running:
    """An arm's process and what its turns gave; ``fault`` where it has ended."""

    arm: Arm
    process: subprocess.Popen[str]
    turns: list[dict[str, Any]] = field(default_factory=list)
    start_s: float = 0.0
    fault: str = ""

    @staticmethod
    def of(arm: Arm, options: argparse.Namespace) -> Running:
        given = [f"--{name}={getattr(options, name)}" for name in ("device", "steps", "patience")]
        command = [
            sys.executable,
            "-m",
            "benchmarks.bench_devices",
            f"--serve={json.dumps(vars(arm))}",
            *given,
        ]
        environment = {"NCCL_NVLS_ENABLE": "0", **os.environ}
        if options.device == "cuda":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible()[: arm.devices])
        pipe = subprocess.PIPE
        return Running(arm, subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment))

    def warm(self) -> None:
        found = self._answer()
        self.start_s = 0.0 if found is None else found["start_s"]
        print(f"{self.name:36} {self.fault or f'ready after {self.start_s:.0f} s'}", flush=True)

    def turn(self) -> None:
        if self.fault:
            return
        with suppress(BrokenPipeError):
            print("turn", file=_pipe(self.process.stdin), flush=True)
        found = self._answer()
        if found is not None:
            self.turns.append(found)
        print(f"{self.name:36} {self.fault or f'{found}'}", flush=True)

    def close(self) -> None:
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    @property
    def name(self) -> str:
        return f"{self.arm.subject}, {self.arm.arm}"

    def row(self, one: Running) -> dict[str, Any]:
        """What is kept of it beside ``one``, the arm on one device."""
        pairs = list(zip(self.turns, one.turns, strict=False))
        same = self.arm.part == "training" and self.arm.batch == one.arm.batch
        off = [abs(mine["loss_nats"] - its["loss_nats"]) for mine, its in pairs] if same else []
        return {
            **vars(self.arm),
            "rate": statistics.median(turn["rate"] for turn in self.turns),
            "all": [turn["rate"] for turn in self.turns],
            "times_one": [mine["rate"] / its["rate"] for mine, its in pairs],
            "loss_off": max(off, default=None),
            "replayed": all(turn.get("replayed", True) for turn in self.turns),
            "start_s": self.start_s,
        }

    def _answer(self) -> dict[str, Any] | None:
        line = "" if self.fault else _pipe(self.process.stdout).readline()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self.fault = self.fault or f"ended with code {self.process.wait()}"
        return None


def compared(arms: list[Arm], options: argparse.Namespace, late: float, record: Record) -> None:
    """Give arms their turns, the first of them on one device, and keep their rows after each. No turn that would end late begins."""
    with ExitStack() as closing:
        running = []
        for arm in arms:
            running.append(Running.of(arm, options))
            closing.callback(running[-1].close)
        for one in running:
            one.warm()
        longest = 0.0
        for repeat in range(options.repeats):
            at = time.monotonic()
            if repeat and at + longest > late:
                print(f"stopped after {repeat} repeats for want of time", flush=True)
                break
            for one in running:
                one.turn()
            longest = max(longest, time.monotonic() - at)
            for one in running:
                if one.turns:
                    record.keep(one.row(running[0]) | made_by(options), SAME)
        for one in running[1:]:
            if one.turns and running[0].turns:
                times = one.row(running[0])["times_one"]
                print(f"{one.name:36} {statistics.median(times):.2f} times one device", flush=True)
    if faults := [f"{one.name}: {one.fault}" for one in running if one.fault]:
        raise RuntimeError("; ".join(faults))


def visible() -> list[str]:
    """The GPUs of this process by the names that CUDA_VISIBLE_DEVICES has for them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else [str(i) for i in range(torch.cuda.device_count())]


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def main() -> None:
    parser = arguments(
        __doc__, repeats=5, seconds=300.0, limit="No repeat but a part's first begins that would end later."
    )
    parser.add_argument("preset", nargs="*", default=["transformer-440m"])
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--per-gpu", type=int, default=8, help="trials that share a device")
    parser.add_argument("--patience", type=float, default=120.0, help="longest turn of trials in seconds")
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(Arm(**options.serve), options)
        return
    name, N = name_of(torch.device(options.device)), options.devices
    if options.device == "cuda" and len(visible()) < N:
        raise SystemExit(
            f"{N} devices of this host are to be compared with one, and {len(visible())} are visible"
        )
    record, late = Record(options.out, device=name), time.monotonic() + options.seconds
    batch, tokens = options.batch, options.tokens
    pieces: dict[str, list[Arm]] = {}
    for preset in options.preset if "training" in options.parts else ():
        pieces[preset] = [
            Arm("training", preset, "one device", 1, batch, tokens),
            Arm("training", preset, f"{N} devices, the same batch", N, batch, tokens),
            Arm("training", preset, f"{N} devices, a batch each", N, N * batch, tokens),
        ]
    if "trials" in options.parts:
        sizes = TRIAL if options.device == "cuda" else bench_packing.SMALL
        pieces["trials"] = [
            Arm("trials", "trials", arm, n, sizes["batch"], sizes["length"], n * options.per_gpu)
            for arm, n in (("one device", 1), (f"{N} devices", N))
        ]
    run_all(
        {
            piece: lambda arms=arms: compared(arms, options, late, record)  # type: ignore[misc]
            for piece, arms in pieces.items()
        },
        never,
    )


if __name__ == "__main__":
    main()
