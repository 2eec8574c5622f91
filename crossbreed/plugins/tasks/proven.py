"""Settings with which a small model was seen to learn a task, by ``benchmarks/prove_tasks.py``; tasks of which none was are left out.

Torch-free. A run ended where its evaluation reached 0.99, or with its tokens.
"""

from __future__ import annotations

from crossbreed.core.contracts.task import Proven

PROVEN: dict[str, Proven] = {
    "facts": Proven(
        {},
        "1 layer of attention and SwiGLU at width 64",
        model_parameters=46784,
        tokens=251904,
        seeds=2,
        score=1.0,
    ),
    "recall": Proven(
        {},
        "2 layers of attention and SwiGLU at width 64",
        model_parameters=86336,
        tokens=501760,
        seeds=2,
        score=0.995,
    ),
    "noisy_recall": Proven(
        {},
        "2 layers of attention and SwiGLU at width 64",
        model_parameters=85312,
        tokens=503808,
        seeds=2,
        score=0.999,
    ),
    "needle": Proven(
        {"length": 32},
        "2 layers of attention and SwiGLU at width 64",
        model_parameters=86400,
        tokens=501760,
        seeds=2,
        score=0.997,
    ),
    "filler_recall": Proven(
        {"length": 64, "pairs": 4, "queries": 12},
        "2 layers of attention and SwiGLU at width 64",
        model_parameters=86336,
        tokens=1503232,
        seeds=2,
        score=0.997,
    ),
    "copy": Proven(
        {},
        "2 layers of attention and SwiGLU at width 64",
        model_parameters=84416,
        tokens=251904,
        seeds=2,
        score=1.0,
    ),
    "selective_copy": Proven(
        {"items": 4, "length": 20},
        "3 layers of attention and SwiGLU at width 64",
        model_parameters=126016,
        tokens=500480,
        seeds=2,
        score=0.994,
    ),
    "compression": Proven(
        {},
        "2 layers of attention and SwiGLU at width 64",
        model_parameters=87744,
        tokens=251904,
        seeds=2,
        score=1.0,
    ),
    "parity": Proven(
        {},
        "1 layer of Gated DeltaNet and SwiGLU at width 64",
        model_parameters=59240,
        tokens=501760,
        seeds=2,
        score=0.992,
    ),
    "fuzzy_recall": Proven(
        {},
        "3 layers of attention and SwiGLU at width 64",
        model_parameters=126976,
        tokens=4001792,
        seeds=2,
        score=0.985,
    ),
    "permutations": Proven(
        {"points": 3},
        "2 layers of Gated DeltaNet and SwiGLU at width 64",
        model_parameters=118544,
        tokens=4000768,
        seeds=2,
        score=0.947,
    ),
    "arithmetic": Proven(
        {"modulus": 5, "length": 13},
        "2 layers of Gated DeltaNet and SwiGLU at width 64",
        model_parameters=118736,
        tokens=4000256,
        seeds=1,
        score=0.98,
    ),
    "pointers": Proven(
        {"places": 5, "hops": 2, "length": 24},
        "3 layers of attention and SwiGLU at width 64",
        model_parameters=125376,
        tokens=2750976,
        seeds=1,
        score=0.991,
    ),
    "variables": Proven(
        {},
        "3 layers of attention and SwiGLU at width 64",
        model_parameters=126272,
        tokens=4001792,
        seeds=1,
        score=0.993,
    ),
}
