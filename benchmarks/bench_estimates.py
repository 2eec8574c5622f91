"""Analytic estimates per second on one core, for genomes of 24 layers.

    python benchmarks/bench_estimates.py [--repeats 7] [--layers 24]

Three kinds of use, each on many different genomes so that no answer is merely looked up:
``swept``: one dimension changes in every layer from call to call, as in a matcher.
``drawn``: every genome has its own pattern of mixers and its own sizes, as in a search; sizes come from small sets.
``cold``:  as swept, but with a new cost model for every call, which has seen nothing.
Aim: 10,000 estimates per second.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.genome import Architecture, Block, Stage, Sublayer
from crossbreed.core.host import Host, Registry
from crossbreed.core.ledger import Shape

SHAPE = Shape(batch=1, tokens=2048, dtype="bfloat16")
AIM = 10_000


def genome(layers: list[tuple[Sublayer, Sublayer]]) -> Architecture:
    """Layers of one sequence mixer and one channel mixer. Blocks are separate objects, as when read from a file."""
    blocks = tuple(Block(sublayers=layer) for layer in layers)
    return Architecture(vocab=32_000, d_model=1024, stages=(Stage(blocks=blocks),))


def swept(count: int, layers: int) -> list[Architecture]:
    attention = Sublayer(mixer="attention", params={"heads": 16, "head_size": 64})
    mamba = Sublayer(mixer="mamba2", params={"heads": 32, "head_size": 64, "state_size": 128})
    found = []
    for i in range(count):
        channel = Sublayer(mixer="swiglu", params={"hidden": 1024 + 4 * i})
        found.append(genome([(attention if n % 6 == 5 else mamba, channel) for n in range(layers)]))
    return found


def drawn(count: int, layers: int) -> list[Architecture]:
    draw = random.Random(0)
    found = []
    for _ in range(count):
        sizes = {"heads": draw.choice([8, 16, 32]), "head_size": draw.choice([32, 64, 96])}
        sequence = [
            Sublayer(mixer="attention", params=sizes),
            Sublayer(mixer="mamba2", params={**sizes, "state_size": draw.choice([32, 64, 128])}),
        ]
        channel = Sublayer(mixer="swiglu", params={"hidden": draw.randrange(1024, 4096, 64)})
        found.append(genome([(draw.choice(sequence), channel) for _ in range(layers)]))
    return found


def rate(genomes: list[Architecture], model: Callable[[], CostModel]) -> float:
    """Estimates per second of this process on a core, so that neighbours on the machine count little."""
    start = time.process_time()
    for architecture in genomes:
        model().estimate(architecture, SHAPE)
    return len(genomes) / (time.process_time() - start)


def fresh(registry: Registry) -> CostModel:
    model: CostModel = registry.factory("cost", "analytic")(registry.config("cost", "analytic", {}), registry)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--layers", type=int, default=24)
    arguments = parser.parse_args()
    registry = Host.load(third_party=False)
    kinds = {"swept": swept(600, arguments.layers), "drawn": drawn(600, arguments.layers)}
    rates: dict[str, list[float]] = {"swept": [], "drawn": [], "cold": []}
    fresh(registry).estimate(kinds["swept"][0], SHAPE)
    # The genomes made above are no part of an estimate, and the collector need not walk them in the middle of one.
    gc.collect()
    gc.freeze()
    # Interleaved, so that a slow moment of the machine falls on all kinds alike.
    for _ in range(arguments.repeats):
        for kind, genomes in kinds.items():
            model = fresh(registry)
            rates[kind].append(rate(genomes, lambda model=model: model))  # type: ignore[misc]
        rates["cold"].append(rate(kinds["swept"][:100], lambda: fresh(registry)))
    for kind, values in rates.items():
        shown = " ".join(f"{v:,.0f}" for v in values)
        median = statistics.median(values)
        print(
            f"{kind:6} median {median:8,.0f}/s = {median / AIM:.2f}x the aim of {AIM:,}/s   repeats: {shown}"
        )


if __name__ == "__main__":
    main()
