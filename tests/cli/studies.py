"""Study files small enough to be searched in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

REFERENCE: dict[str, Any] = {
    "d_model": 16,
    "stages": [
        {
            "blocks": [
                {
                    "sublayers": [
                        {"mixer": "attention", "params": {"heads": 2, "head_size": 8}},
                        {"mixer": "swiglu", "params": {"hidden": 32}},
                    ]
                }
            ]
        }
    ],
}
TINY: dict[str, Any] = {
    "schema": 1,
    "name": "tiny",
    "task": {"name": "recall", "params": {"pairs": 2, "length": 12, "vocab": 16, "eval_items": 32}},
    "space": {
        "mixers": ["attention", "swiglu"],
        "routers": [],
        "depth": ["layered"],
        "params": {"layers": 1},
    },
    "budget": {
        "reference": REFERENCE,
        "match": {"training_flops_per_token": "20%"},
        "cap": {"memory_bytes": "50%"},
    },
    "train": {"tokens": 960, "batch": 8, "lr": 0.003, "log_every": 2},
    "search": {"trials": 1, "seeds": 1},
}


def write_study(path: Path, **changes: Any) -> Path:
    """A tiny study file with some sections changed; mappings are merged, anything else replaces."""
    data = {
        key: {**TINY[key], **value} if isinstance(value, dict) and key in TINY else value
        for key, value in {**TINY, **changes}.items()
    }
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path
