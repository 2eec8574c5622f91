"""The roofline cost model (Williams et al., 2009): each part takes as long as its arithmetic or its memory, whichever is more.

Per part and pass:  seconds = max(executed FLOPs / matrix rate, bytes moved / copy bandwidth) + launches x seconds a launch.

Bytes of a pass over B x T tokens: prefill reads each run's weights once, and writes and reads what training would keep;
training does so forward and twice backward; decode reads the weights that are used once for the batch, and each row's
state. The rates are a device's ceilings, so the answer is a bound on the same launches, not an average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Ledger, Part, Phase, Prediction, Shape
from crossbreed.plugins.costs.bill import PHASES

BACKWARD = 3
"""Passes over weights and activations in training, for one in prefill."""


class Roofline(CostModel):
    """The analytic ledger with predicted seconds per token. ``device`` holds ceilings (see ``core.lab.ceilings``)."""

    def __init__(self, config: Any, parts: Parts) -> None:
        super().__init__(config, parts)
        self.analytic = parts.factory("cost", "analytic")(parts.config("cost", "analytic", {}), parts)

    def estimate(
        self,
        architecture: Architecture,
        shape: Shape,
        device: Mapping[str, Any] | None = None,
        rates: Mapping[str, tuple[float, ...]] | None = None,
    ) -> Ledger:
        """Raises ConfigError without ceilings, or when the device was not measured in the shape's dtype."""
        name, rate, bandwidth, launch = _ceilings(device, shape.dtype)
        ledger: Ledger = self.analytic.estimate(architecture, shape, None, rates)
        seconds: dict[str, dict[str, float]] = {}
        for part in ledger.parts:
            launches = self.config.launches_per_run * part.runs * launch
            seconds[part.site] = {
                str(phase): _of_pass(part, phase, shape, rate, bandwidth, launches) for phase in PHASES
            }
        total: dict[str, float] = {
            str(phase): math.fsum(part[phase] for part in seconds.values()) for phase in PHASES
        }
        prediction = Prediction("roofline", name, total, seconds)
        return Ledger(**{**vars(ledger), "prediction": prediction})


def _of_pass(part: Part, phase: Phase, shape: Shape, rate: float, bandwidth: float, launches: float) -> float:
    """Seconds per token of one part."""
    tokens = shape.batch * (1 if phase == "decode" else shape.tokens)
    narrow = shape.dtype_bytes
    if phase == "decode":
        flops = part.executed_decode_flops_per_token
        weights = part.decode_traffic_bytes_per_token - part.state_traffic_bytes_per_token
        moved = weights + shape.batch * part.state_traffic_bytes_per_token
    else:
        flops = part.executed_prefill_flops_per_token
        moved = part.weight_reads * narrow + 2 * part.kept_bytes_per_token * tokens
        if phase == "train":
            flops, moved, launches = (
                part.executed_training_flops_per_token,
                BACKWARD * moved,
                BACKWARD * launches,
            )
    return max(flops / rate, moved / bandwidth / tokens) + launches / tokens


def _ceilings(device: Mapping[str, Any] | None, dtype: str) -> tuple[str, float, float, float]:
    if device is None or "matrix_flops_per_s" not in device:
        raise ConfigError(
            "cost model 'roofline' needs the ceilings of a device; measure them once with `crossbreed doctor --measure`."
        )
    rates = device["matrix_flops_per_s"]
    if dtype not in rates:
        raise ConfigError(
            f"device {device['name']!r} was measured in {', '.join(sorted(rates))}, not in {dtype}; "
            "measure it again with `crossbreed doctor --measure`, or ask for one of these."
        )
    return (
        str(device["name"]),
        float(rates[dtype]),
        float(device["copy_bytes_per_s"]),
        float(device["launch_s"]),
    )
