"""A simulated device: its ceilings, what a model takes on it by them, and profiles with the noise of real ones.

Its times come from the probes' own arithmetic, not from any cost model, so that predictions are judged from outside.
"""

from __future__ import annotations

import math
import random
from typing import Any

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.costs.models import BOTH, layers
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import DTYPE_BYTES, Phase, Shape

NAME = "conformance.device"
RATE, BANDWIDTH, LAUNCH = 1e11, 1e10, 2e-6
LAUNCHES_PER_RUN = 16
"""FLOPs a second, bytes a second, seconds a launch, and launches of each run of a block."""
NOISE = 0.05
"""Standard deviation of the logarithm of a measured time."""
PHASES: tuple[Phase, ...] = ("train", "prefill", "decode")


def ceilings() -> dict[str, Any]:
    """What is stored of the device before anything was profiled on it."""
    return {
        "name": NAME,
        "matrix_flops_per_s": dict.fromkeys(DTYPE_BYTES, RATE),
        "copy_bytes_per_s": BANDWIDTH,
        "launch_s": LAUNCH,
        "profiles": [],
    }


def seconds_per_token(architecture: Architecture, shape: Shape, phase: Phase) -> float:
    """What a token of a pass takes on this device, with every decision taken."""
    tokens = shape.batch * (1 if phase == "decode" else shape.tokens)
    context = shape.tokens if phase == "decode" else (shape.tokens + 1) / 2
    flops = 2.0 * architecture.d_model * architecture.vocab
    weights, state, runs = architecture.d_model * architecture.vocab, 0.0, 1
    for stage in architecture.stages:
        for block in stage.blocks:
            for sublayer in block.sublayers:
                width, repeats = int(sublayer.params["width"]), stage.depth.repeats
                looks = sublayer.mixer == probes.LOOKING
                runs += repeats
                weights += repeats * 2 * architecture.d_model * width
                flops += repeats * (4.0 * architecture.d_model * width + looks * 4.0 * width * context)
                state += repeats * width * (shape.tokens if looks else 2)
    times = 3 if phase == "train" else 1
    moved = (
        weights / tokens + (state if phase == "decode" else 20.0 * architecture.d_model * runs)
    ) * shape.dtype_bytes
    return times * (flops / RATE + moved / BANDWIDTH + runs * LAUNCHES_PER_RUN * LAUNCH / tokens)


def measured(architecture: Architecture, shape: Shape, phase: Phase, seed: int) -> float:
    """A measurement of it."""
    noise = math.exp(random.Random(f"{seed}/{phase}").gauss(0.0, NOISE))
    return seconds_per_token(architecture, shape, phase) * noise


def profiles(
    architectures: list[Architecture], shape: Shape, phases: tuple[Phase, ...]
) -> list[dict[str, Any]]:
    """Profiles of some architectures at a shape, under both execution policies, as a database holds them."""
    return [
        {
            "architecture": architecture.model_dump(mode="json"),
            "rates": None,
            "phase": phase,
            "batch": shape.batch,
            "tokens": shape.tokens,
            "dtype": shape.dtype,
            "device": NAME,
            "policy": policy,
            "compiled": False,
            "seconds_per_token": measured(architecture, shape, phase, number),
        }
        for number, architecture in enumerate(architectures)
        for phase in phases
        for policy in ("reference", "best")
    ]


def profiled(count: int, seed: int = 0) -> list[Architecture]:
    """Different architectures: a smallest and a largest one, and others between them."""
    drawn, found = (
        random.Random(seed),
        [
            layers(probes.FADING, width=1, d_model=8, vocab=8),
            layers(*(BOTH * 8), width=48, d_model=48, vocab=300),
        ],
    )
    while len(found) < count:
        found.append(
            layers(
                *drawn.choices(BOTH, k=drawn.randint(1, 12)),
                width=drawn.choice((2, 4, 8, 16, 32)),
                d_model=drawn.choice((8, 16, 32, 48)),
                vocab=drawn.choice((8, 32, 128, 300)),
            )
        )
    return found
