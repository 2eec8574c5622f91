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
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.attempts import deadline, freed, made, run_all
from benchmarks.crossings import crossings
from benchmarks.interleaved import elapsed, in_turn
from benchmarks.record import Record, arguments, made_by, name_of
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
LIMIT = "No new context or model is begun after these."
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


@dataclass(frozen=True, eq=False)
class Arm:
    """One way to decode. ``rate``: of its gates, None where it has none."""

    name: str
    model: str
    genome: Architecture
    step: StaticStep
    rate: str | None = None


class Bench:
    """The device, the clock and the record."""

    def __init__(self, options: argparse.Namespace, **settings: Any) -> None:
        self.options = options
        self.device = torch.device(options.device)
        self.dtype = "bfloat16" if self.device.type == "cuda" else "float32"
        self.registry: Registry = Host.load(third_party=False)
        self.late = deadline(options.seconds)
        settings = {"dtype": self.dtype, "repeats": options.repeats, **settings}
        self.record = Record(options.out, device=name_of(self.device), **settings)
        self.record.data |= {**made_by(options), "copy_bytes_per_s": self.bandwidth()}

    def bandwidth(self) -> float:
        """Bytes read and written a second by a copy of 1 GiB."""
        numbers = 1 << (28 if self.device.type == "cuda" else 20)
        source = torch.ones(numbers, device=self.device)
        target = torch.empty_like(source)
        ms = statistics.median(elapsed(lambda: target.copy_(source), self.device) for _ in range(9))
        rate = 8e3 * numbers / ms
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

    return elapsed(run, bench.device) / 1e3 / tokens


def measured(bench: Bench, arms: list[Arm], part: str, batch: int, contexts: list[int]) -> None:
    """Every arm at every context, interleaved, into the record."""
    inputs = {arm: bench.inputs(arm.step, arm.rate, UNTIMED + bench.options.tokens) for arm in arms}
    for context in contexts:
        if bench.late():
            print(f"{part}: out of time before context {context}", flush=True)
            return
        calls = {arm: partial(sample, bench, arm, context, inputs[arm]) for arm in arms}
        for arm, seconds in in_turn(calls, bench.options.repeats).items():
            written(bench, arm, part, batch, context, seconds)


def written(bench: Bench, arm: Arm, part: str, batch: int, context: int, seconds: list[float]) -> None:
    rates = [batch / s for s in seconds]
    moved = bench.bytes(arm.genome, batch, context, arm.rate)
    bound = batch * bench.record.data["copy_bytes_per_s"] / moved
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
    bench.record.keep(row, ("arm", "rate", "batch", "context"), part)
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
    capacity = max(o.contexts) + UNTIMED

    def ready(preset: str, router: Router | None) -> tuple[Architecture, StaticStep]:
        genome = bench.genome(preset, router)
        return genome, bench.step(genome, batch, capacity, caches)

    ran = made({name: partial(ready, *model) for name, model in models.items()})
    return [
        Arm(name, models[name][0], genome, step, rate)
        for name, (genome, step) in ran.items()
        for rate in (o.rates if name.startswith("AMOR") else [None])
    ]


def crossover(bench: Bench) -> None:
    for batch in bench.options.batch:
        caches = Caches()
        arms = arms_of(bench, batch, caches)
        measured(bench, arms, "crossover", batch, bench.options.contexts)
        if batch == 1 and "launched" in bench.options.part:
            launched(bench, arms)
        del arms, caches
        freed()
    genome = bench.genome(f"amor-{bench.options.backbone}-{bench.options.scale}")
    for row in crossings(bench.record.data, genome.vocab, genome.d_model):
        bench.record.keep(row, ("part", "arm", "rival", "batch", "rate"), "crossings")
        print(
            f"{row['part']:10} batch {row['batch']} {row['arm']} at {row['rate']} passes {row['rival']}: {row['from']} {row['tokens']:,}",
            flush=True,
        )


def launched(bench: Bench, arms: list[Arm]) -> None:
    """The same models at batch 1 as they decode without a recording, AMOR at the rate of --crossing."""
    chosen = [arm for arm in arms if arm.rate in (None, bench.options.crossing)]
    for context in bench.options.contexts:
        if bench.late():
            print(f"launched: out of time before context {context}", flush=True)
            return
        calls = {arm: partial(one_by_one, bench, arm, context) for arm in chosen}
        for arm, seconds in in_turn(calls, bench.options.repeats).items():
            written(bench, arm, "launched", 1, context, seconds)


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
        return elapsed(lambda: run(inputs[UNTIMED:]), bench.device) / 1e3 / LAUNCHED_TOKENS


def whole(bench: Bench) -> None:
    """Presets at batch 1 beside their bytes."""
    o = bench.options

    def one(name: str) -> None:
        genome = bench.genome(name)
        step = bench.step(genome, 1, max(o.whole_contexts) + UNTIMED, Caches())
        rate = o.crossing if step.sites else None
        measured(bench, [Arm(name, name, genome, step, rate)], "whole", 1, o.whole_contexts)

    run_all({f"whole: {name}": partial(one, name) for name in o.whole}, bench.late)


def main() -> None:
    parser = arguments(__doc__, repeats=5, seconds=400.0, limit=LIMIT)
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
    options = parser.parse_args()
    bench = Bench(options, tokens=options.tokens)
    run = {"crossover": crossover, "whole": whole}
    run_all({part: partial(run[part], bench) for part in options.part if part in run})


if __name__ == "__main__":
    main()
