"""A device's ceilings: how fast it multiplies, copies and launches. Measured once, kept in a file among a database's artefacts.

The file maps device names to ceilings, so that one file serves several machines.
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError, CrossbreedError
from crossbreed.core.lab.environment import device_name
from crossbreed.core.lab.neighbours import Watch
from crossbreed.core.lab.profile import measure

SIZES = {"cuda": 8192, "cpu": 1024}
"""Rows of the square matrices that are multiplied."""
COPIED_BYTES = {"cuda": 1 << 30, "cpu": 1 << 27}
LAUNCHES = 200
"""Operations too small to take time of their own, timed together."""
DTYPES = {"cuda": ("float32", "bfloat16", "float16"), "cpu": ("float32", "bfloat16", "float64")}
FILE = "devices.json"
FIELDS = ("matrix_flops_per_s", "copy_bytes_per_s", "launch_s")


def measure_ceilings(device: torch.device) -> dict[str, Any]:
    """``{name, matrix_flops_per_s: {dtype: rate}, copy_bytes_per_s, launch_s, neighbours}``, medians after a stable warm-up.

    ``neighbours``: other processes first seen at work on the device, empty when there were none. Copied bytes count read and written. float32 products run at the precision that training uses.
    """
    kind = device.type
    size = SIZES[kind]
    synchronise = (lambda: torch.cuda.synchronize(device)) if kind == "cuda" else (lambda: None)

    watch, seen = Watch.of(device), ""

    def seconds(call: Any) -> float:
        nonlocal seen
        timing = measure(call, synchronise=synchronise, watch=watch)
        seen = seen or timing.neighbours or ""
        return timing.median

    rates = {}
    with torch.inference_mode():
        for dtype in DTYPES[kind]:
            a, b = (torch.randn(size, size, device=device).to(getattr(torch, dtype)) for _ in range(2))
            rates[dtype] = 2.0 * size**3 / seconds(lambda a=a, b=b: a @ b)
        source = torch.ones(COPIED_BYTES[kind] // 4, device=device)
        target = torch.empty_like(source)
        bandwidth = 2.0 * COPIED_BYTES[kind] / seconds(lambda: target.copy_(source))
        small = torch.zeros(1, device=device)

        def launches() -> None:
            for _ in range(LAUNCHES):
                small.add_(1.0)

        launch = seconds(launches) / LAUNCHES
    return {
        "name": device_name(device),
        "matrix_flops_per_s": rates,
        "copy_bytes_per_s": bandwidth,
        "launch_s": launch,
        "neighbours": seen,
    }


def store(artefacts: Artefacts, ceilings: dict[str, Any]) -> None:
    """Add one device's ceilings to those that are kept, replacing its earlier ones."""
    known = read(artefacts) if artefacts.exists(FILE) else {}
    known[str(ceilings["name"])] = {name: ceilings[name] for name in FIELDS}
    artefacts.write(FILE, (json.dumps(known, indent=2, sort_keys=True) + "\n").encode())


def read(artefacts: Artefacts) -> dict[str, dict[str, Any]]:
    """Ceilings by device name. Raises ConfigError where none were kept, or the file does not hold ceilings."""
    file = artefacts.shown(FILE)
    try:
        known = json.loads(artefacts.read(FILE))
    except CrossbreedError:
        raise
    except FileNotFoundError:
        raise ConfigError(
            f"no device was measured yet ({file} is missing); run `crossbreed doctor --measure`."
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is not a file of ceilings ({error}); measure the device again.") from error
    for name, ceilings in known.items() if isinstance(known, dict) else [("", None)]:
        if not (
            isinstance(ceilings, dict) and all(field in ceilings for field in FIELDS) and _positive(ceilings)
        ):
            raise ConfigError(
                f"{file} holds no ceilings for {name!r}; each device needs {', '.join(FIELDS)} above 0. Measure it again."
            )
    return {name: {"name": name, **ceilings} for name, ceilings in known.items()}


def _positive(ceilings: dict[str, Any]) -> bool:
    rates = ceilings["matrix_flops_per_s"]
    numbers = (
        [*rates.values(), ceilings["copy_bytes_per_s"], ceilings["launch_s"]]
        if isinstance(rates, dict)
        else []
    )
    return bool(numbers) and all(isinstance(n, int | float) and math.isfinite(n) and n > 0 for n in numbers)
