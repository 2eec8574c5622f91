"""Decoded tokens/s of AMOR beside its rivals over contexts, and of whole models beside the bytes that they must move.

    python -m benchmarks.bench_decode [--part NAME ...] [--batch 1 8] [--contexts 4096 ...] [--rates 0 0.22 ...] [--out record.json]

Parts. *crossover*: AMOR with its entropy gate (one product with the output head a block) and with the distilled router in its
place, gates forced at --rates, evenly spread and staggered over the rows; against the same blocks always on, a serial hybrid and
the backbone alone. *launched*: some of the same, one token after another as models decode without a recording, kernel by kernel.
*whole*: the --whole presets at batch 1, against the ledger's bytes a token over the copy bandwidth measured here.

No text is read beforehand: caches are made at their full size and hold random numbers, recurrent states too, and positions are put
where the context ends, so that the last of --tokens stands at the context's length. Weights are random. bfloat16 over float32
weights, whose casts a recorded step keeps. Each repeat times --tokens tokens after a few that are not timed; arms are interleaved.
Bytes of a batch: weights once, state for each row.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.bench_backends import commit, versions
from benchmarks.crossings import crossings
from crossbreed.core.genome import Architecture, Router
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab.environment import precision
from crossbreed.core.lab.operating_points import spread
from crossbreed.core.lab.steps import RecordedStep, StaticStep
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import ModelState
from crossbreed.presets import presets
from crossbreed.presets.cells import with_router

PARTS = ("crossover", "launched", "whole")
UNTIMED = 4
"""Tokens before each sample."""
LAUNCHED_TOKENS = 10
STAGGER = 7
"""Tokens by which a row's gates are ahead of the row's before it."""


class Caches:
    """Large tensors that the arms use one after another: what they hold does not matter."""

    def __init__(self) -> None:
        self.made: dict[tuple[Any, ...], list[Tensor]] = {}

    def share(self, state: ModelState) -> ModelState:
        """The state with its caches replaced by shared ones, all filled with what a long text would leave."""
        taken: dict[tuple[Any, ...], Iterator[Tensor]] = {}
        for own in state.mixers.values():
            for name, tensor in own.items():
                key = name.rpartition(".")[2], tensor.shape, tensor.dtype
                if key[0] not in ("k", "v", "document", "position"):
                    if tensor.is_floating_point():
                        tensor.normal_(0.0, 0.1)
                    continue
                pool = self.made.setdefault(key, [])
                place = taken.setdefault(key, iter(list(pool)))
                found = next(place, None)
                if found is None:
                    found = tensor
                    pool.append(found)
                    self._fill(key[0], found)
                own[name] = found
        return state

    @staticmethod
    def _fill(name: str, tensor: Tensor) -> None:
        if name == "document":
            tensor.fill_(1)
        elif name == "position":
            tensor.copy_(torch.arange(tensor.shape[1], device=tensor.device))
        else:
            for row in tensor:
                row.normal_()


@dataclass
class Arm:
    """One way to decode. ``rate``: of its gates, None where it has none."""

    name: str
    model: str
    genome: Architecture
    step: StaticStep
    rate: str | None = None
    seconds: dict[int, list[float]] = field(default_factory=dict)


class Bench:
    """The device, the clock and the record."""

    def __init__(self, options: argparse.Namespace, **settings: Any) -> None:
        self.options = options
        self.device = torch.device(options.device)
        self.dtype = "bfloat16" if self.device.type == "cuda" else "float32"
        self.registry: Registry = Host.load(third_party=False)
        self.end = time.perf_counter() + options.seconds
        self.record: dict[str, Any] = {}
        if options.out is not None and options.out.exists():
            self.record = json.loads(options.out.read_text(encoding="utf-8"))
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu"
        about = {"device": name, "dtype": self.dtype, "repeats": options.repeats, **settings}
        if any(self.record.get(key, value) != value for key, value in about.items()):
            raise SystemExit(f"{options.out} is of other settings than {about}; give another --out")
        self.record |= {**about, "versions": versions(), "commit": options.commit}
        self.record |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "copy_bytes_per_s": self.bandwidth()}

    def keep(self, part: str, row: dict[str, Any], same: tuple[str, ...]) -> None:
        """Put a row into the record, in place of one with the same names and numbers."""
        rows = self.record.setdefault(part, [])
        rows[:] = [old for old in rows if any(old.get(key) != row[key] for key in same)] + [row]
        if self.options.out is not None:
            self.options.out.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.end

    def seconds(self, call: Callable[[], object]) -> float:
        """What the device takes for a call, from its first kernel to its last."""
        if self.device.type != "cuda":
            begun = time.perf_counter()
            call()
            return time.perf_counter() - begun
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda.synchronize()
        marks[0].record()
        call()
        marks[1].record()
        torch.cuda.synchronize()
        return marks[0].elapsed_time(marks[1]) / 1e3

    def bandwidth(self) -> float:
        """Bytes read and written a second by a copy of 1 GiB."""
        numbers = 1 << (28 if self.device.type == "cuda" else 20)
        source = torch.ones(numbers, device=self.device)
        target = torch.empty_like(source)
        rate = 8.0 * numbers / statistics.median(self.seconds(lambda: target.copy_(source)) for _ in range(9))
        print(f"copies {rate / 1e12:.2f} TB/s", flush=True)
        return rate

    def genome(self, name: str, router: Router | None = None) -> Architecture:
        genome = presets()[name].build()
        return self.registry.canonical(genome if router is None else with_router(genome, "gate", router))

    @torch.inference_mode()
    def step(self, genome: Architecture, batch: int, capacity: int, caches: Caches) -> StaticStep:
        with torch.device(self.device):
            model = LanguageModel(genome, self.registry, seed=0).eval()
        dtype = getattr(torch, self.dtype)
        state = caches.share(model.init_state(batch, slots=capacity, dtype=dtype))
        state.position_B.fill_(capacity // 2)
        kind = RecordedStep if self.device.type == "cuda" else StaticStep
        forced = [name for name, site in model.sites().items() if site.kind == "gate"]
        # Positions are put back by hand, and stay below the capacity.
        return kind(model, state, room=1 << 60, forced=forced, dtype=self.dtype)

    def inputs(self, step: StaticStep, rate: str | None, count: int) -> list[Tensor]:
        """What each of ``count`` tokens reads: random tokens, and choices at the rate."""
        rows = len(step.rows_B)
        g = torch.Generator().manual_seed(0)
        read = [torch.randint(step.model.architecture.vocab, (rows, count), generator=g)]
        fires = [spread(Fraction(rate or "0"), b * STAGGER, count) for b in range(rows)]
        read += [torch.stack(fires)] * len(step.sites)
        return list(torch.stack(read).to(self.device).permute(2, 0, 1).contiguous())

    def bytes(self, genome: Architecture, batch: int, tokens: int, rate: str | None) -> float:
        """Moved for one token of every row, by the ledger."""
        model = self.registry.factory("cost", "analytic")(None, self.registry)
        shape = Shape(batch, tokens, "bfloat16")
        rates = None
        if rate is not None:
            share = float(Fraction(rate))
            named = model.estimate(genome, shape).rates
            rates = dict.fromkeys(named, (1.0 - share, share))
        found = model.estimate(genome, shape, None, rates)
        state = sum(part.state_traffic_bytes_per_token for part in found.parts)
        return float(found.decode_traffic_bytes_per_token + (batch - 1) * state)


@torch.inference_mode()
def sample(bench: Bench, arm: Arm, context: int, inputs: list[Tensor]) -> float:
    """Seconds a token at the end of a context."""
    step, tokens = arm.step, bench.options.tokens
    state = step.state
    state.position_B.fill_(context - tokens - UNTIMED)
    for own in state.mixers.values():
        for counter in (tensor for tensor in own.values() if not tensor.dim()):
            counter.zero_()
    for read in inputs[:UNTIMED]:
        step(read)

    def run() -> None:
        for read in inputs[UNTIMED:]:
            step(read)

    return bench.seconds(run) / tokens


def measured(bench: Bench, arms: list[Arm], part: str, batch: int, contexts: list[int]) -> None:
    """Every arm at every context, interleaved, into the record."""
    inputs = {id(arm): bench.inputs(arm.step, arm.rate, UNTIMED + bench.options.tokens) for arm in arms}
    for context in contexts:
        if bench.late:
            print(f"{part}: out of time before context {context}", flush=True)
            return
        found: dict[int, list[float]] = {id(arm): [] for arm in arms}
        for _ in range(bench.options.repeats):
            for arm in arms:
                found[id(arm)].append(sample(bench, arm, context, inputs[id(arm)]))
        for arm in arms:
            written(bench, arm, part, batch, context, found[id(arm)])


def written(bench: Bench, arm: Arm, part: str, batch: int, context: int, seconds: list[float]) -> None:
    rates = [batch / s for s in seconds]
    moved = bench.bytes(arm.genome, batch, context, arm.rate)
    bound = batch * bench.record["copy_bytes_per_s"] / moved
    row = {
        "arm": arm.name,
        "model": arm.model,
        "rate": arm.rate,
        "batch": batch,
        "context": context,
        "tokens_per_s": statistics.median(rates),
        "all": rates,
        "bytes_per_step": moved,
        "bound_tokens_per_s": bound,
    }
    bench.keep(part, row, ("arm", "rate", "batch", "context"))
    print(
        f"{part:10} batch {batch} {context:8,} {arm.name:24} {arm.rate or '':5} {row['tokens_per_s']:10,.0f} tokens/s "
        f"({min(rates):,.0f} to {max(rates):,.0f}), {row['tokens_per_s'] / bound:.0%} of the bytes' bound",
        flush=True,
    )


def arms_of(bench: Bench, batch: int, caches: Caches) -> list[Arm]:
    """AMOR with both routers at all rates, and its rivals; one model each."""
    o = bench.options
    amor = f"amor-{o.backbone}-{o.scale}"
    models = {
        "AMOR, entropy gate": (amor, None),
        "AMOR, distilled router": (amor, Router(name="distilled")),
        "blocks always on": (f"always-{o.backbone}-{o.scale}", None),
        "serial hybrid": (f"serial-{o.backbone}-{o.scale}", None),
        "backbone": (f"{o.backbone}-{o.scale}", None),
    }
    arms = []
    for name, (preset, router) in models.items():
        begun = time.perf_counter()
        try:
            genome = bench.genome(preset, router)
            step = bench.step(genome, batch, max(o.contexts) + UNTIMED, caches)
        except Exception:
            traceback.print_exc()
            continue
        print(f"{name:24} batch {batch} ready after {time.perf_counter() - begun:.1f} s", flush=True)
        for rate in o.rates if name.startswith("AMOR") else [None]:
            arms.append(Arm(name, preset, genome, step, rate))
    return arms


def crossover(bench: Bench) -> None:
    for batch in bench.options.batch:
        caches = Caches()
        arms = arms_of(bench, batch, caches)
        measured(bench, arms, "crossover", batch, bench.options.contexts)
        if batch == 1 and "launched" in bench.options.part:
            launched(bench, arms)
        del arms, caches
        gc.collect()
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()
    genome = bench.genome(f"amor-{bench.options.backbone}-{bench.options.scale}")
    for row in crossings(bench.record, genome.vocab, genome.d_model):
        bench.keep("crossings", row, ("part", "arm", "rival", "batch", "rate"))
        print(
            f"{row['part']:10} batch {row['batch']} {row['arm']} at {row['rate']} passes {row['rival']}: {row['from']} {row['tokens']:,}",
            flush=True,
        )


def launched(bench: Bench, arms: list[Arm]) -> None:
    """The same models at batch 1 as they decode without a recording, AMOR at the rate of --crossing."""
    chosen = [arm for arm in arms if arm.rate in (None, bench.options.crossing)]
    for context in bench.options.contexts:
        found: dict[int, list[float]] = {id(arm): [] for arm in chosen}
        for _ in range(bench.options.repeats):
            for arm in chosen:
                if bench.late:
                    print(f"launched: out of time before context {context}", flush=True)
                    return
                found[id(arm)].append(one_by_one(bench, arm, context))
        for arm in chosen:
            written(bench, arm, "launched", 1, context, found[id(arm)])


@torch.inference_mode()
def one_by_one(bench: Bench, arm: Arm, context: int) -> float:
    """Seconds a token, launched kernel by kernel; the host's look at each gate included."""
    step, model, count = arm.step, arm.step.model, UNTIMED + LAUNCHED_TOKENS
    begin = context - count
    inputs = bench.inputs(step, arm.rate, count)
    mixers = {
        site: {
            name: torch.tensor(begin) if name.endswith("length") else tensor for name, tensor in own.items()
        }
        for site, own in step.state.mixers.items()
    }
    position_B = torch.full_like(step.state.position_B, begin)
    state: ModelState | None = ModelState(mixers, dict(step.state.routers), position_B)

    def run(some: list[Tensor]) -> None:
        nonlocal state
        for read_NB in some:
            tokens_B1, *choices = (row_B[:, None] for row_B in read_NB)
            forced = dict(zip(step.sites, choices, strict=True))
            context = model.context(tokens_B1, phase="decode", forced=forced, state=state)
            h_B1D, state = model(tokens_B1, context, state)
            model.logits(h_B1D)

    with precision(bench.dtype, bench.device):
        run(inputs[:UNTIMED])
        return bench.seconds(lambda: run(inputs[UNTIMED:])) / LAUNCHED_TOKENS


def whole(bench: Bench) -> None:
    """Presets at batch 1 beside their bytes."""
    o = bench.options
    for name in o.whole:
        if bench.late:
            print(f"whole: out of time before {name}", flush=True)
            return
        try:
            genome = bench.genome(name)
            step = bench.step(genome, 1, max(o.whole_contexts) + UNTIMED, Caches())
            rate = o.crossing if step.sites else None
            measured(bench, [Arm(name, name, genome, step, rate)], "whole", 1, o.whole_contexts)
        except Exception:
            traceback.print_exc()
        step = None
        gc.collect()
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()


def settings(parser: argparse.ArgumentParser) -> None:
    """What every benchmark of decoding is told."""
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=400.0, help="No new context or model is begun after so long."
    )
    parser.add_argument(
        "--commit", default=commit(), help="Of the tree that runs, where it has no history with it."
    )
    parser.add_argument("--out", type=Path, help="The record to write, or to add to.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--scale", default="440m")
    parser.add_argument("--backbone", default="gdn", choices=("gdn", "mamba2"))
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--contexts", type=int, nargs="*", default=[4096, 16_384, 65_536, 262_144, 458_752])
    parser.add_argument("--rates", nargs="*", default=["0", "0.1", "0.22", "0.4", "1"])
    parser.add_argument("--crossing", default="0.22", help="The rate of single arms.")
    parser.add_argument(
        "--whole", nargs="*", default=["gdn-1.5b", "mamba2-1.5b", "transformer-1.5b", "amor-gdn-1.5b"]
    )
    parser.add_argument("--whole-contexts", type=int, nargs="*", default=[4096, 65_536])
    parser.add_argument("--tokens", type=int, default=50)
    settings(parser)
    options = parser.parse_args()
    bench = Bench(options, tokens=options.tokens)
    run = {"crossover": crossover, "whole": whole}
    for part in options.part:
        if part in run:
            begun = time.perf_counter()
            try:
                run[part](bench)
            except Exception:
                traceback.print_exc()
            print(f"{part} took {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
