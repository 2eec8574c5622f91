"""The measured cost model: seconds per token fitted to stored profiles of one device.

    seconds per pass = a FLOPs + b weight bytes + c activation or state bytes + d runs + e,   a ... e >= 0,

with the numbers of a pass from the analytic ledger. The fit minimises relative errors over profiles of one key (phase,
batch, tokens, dtype, device, policy, compiled). Its error is measured on architectures that it did not see, and outside the
range of what it saw it refuses to answer unless asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from crossbreed.core.contracts.cost import CostModel
from crossbreed.core.contracts.parts import Parts
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.ledger import Ledger, Phase, Prediction, Shape
from crossbreed.plugins.costs.bill import PHASES

FEATURES = ("FLOPs", "weight bytes", "activation or state bytes", "runs of parts")
KEY = ("phase", "batch", "tokens", "dtype", "device", "policy")
FEWEST = 6
"""Architectures that a fit of five numbers needs at least."""
FOLDS = 5
MARGIN = 0.05
"""How far beyond the fitted range, relative to its ends, still counts as inside."""


@dataclass(frozen=True)
class Fit:
    """Weights of the features and a constant, the range that was seen, and the error on what was not."""

    weights: np.ndarray
    low: np.ndarray
    high: np.ndarray
    error: float


class Measured(CostModel):
    """The analytic ledger with seconds per token fitted to ``device["profiles"]``.

    A profile is a mapping of ``architecture`` (a genome), ``rates`` (or None), ``phase``, ``batch``, ``tokens``, ``dtype``,
    ``device``, ``policy``, ``compiled`` and ``seconds_per_token``.
    """

    def __init__(self, config: Any, parts: Parts) -> None:
        super().__init__(config, parts)
        self.analytic = parts.factory("cost", "analytic")(parts.config("cost", "analytic", {}), parts)
        # A search asks about many architectures on one device; its profiles are held, so that they stay themselves.
        self._profiles: object = None
        self._known: dict[tuple[Phase, Shape], Fit | None] = {}

    def estimate(
        self,
        architecture: Architecture,
        shape: Shape,
        device: Mapping[str, Any] | None = None,
        rates: Mapping[str, tuple[float, ...]] | None = None,
    ) -> Ledger:
        """Predicts every phase that profiles of the shape exist for.

        Raises ConfigError where none exist, where they are too few, or where the architecture lies outside what they cover
        and ``extrapolate`` is off.
        """
        if device is None or not device.get("profiles"):
            raise ConfigError(
                "cost model 'measured' needs stored profiles; search or profile on this device first, or use 'roofline'."
            )
        ledger: Ledger = self.analytic.estimate(architecture, shape, None, rates)
        seconds: dict[str, float] = {}
        errors: dict[str, float] = {}
        for phase in PHASES:
            fit = self._fit_of(device, phase, shape)
            if fit is None:
                continue
            point = _features(ledger, phase, shape)
            self._check_range(point, fit, phase)
            seconds[phase] = float(_with_constant(point) @ fit.weights) / _tokens(phase, shape)
            errors[phase] = fit.error
        if not seconds:
            seen = sorted({(p["phase"], p["batch"], p["tokens"], p["dtype"]) for p in device["profiles"]})
            raise ConfigError(
                f"cost model 'measured' has no profiles at batch {shape.batch}, {shape.tokens} tokens in {shape.dtype} under "
                f"policy {self.config.policy!r}; profiles exist at {', '.join(map(str, seen))}."
            )
        prediction = Prediction("measured", str(device["name"]), seconds, {}, errors)
        return Ledger(**{**vars(ledger), "prediction": prediction})

    def _fit_of(self, device: Mapping[str, Any], phase: Phase, shape: Shape) -> Fit | None:
        """The fit of the device's profiles of a phase, made once; None where there are no profiles."""
        if device["profiles"] is not self._profiles:
            self._profiles, self._known = device["profiles"], {}
        key = phase, shape
        if key not in self._known:
            profiles = [p for p in device["profiles"] if self._fits(p, device["name"], phase, shape)]
            wanted = self.config.compiled
            if wanted is None:
                wanted = any(p["compiled"] for p in profiles)
            profiles = [p for p in profiles if p["compiled"] == wanted]
            self._known[key] = self._fit(profiles, phase, shape) if profiles else None
        return self._known[key]

    def _fits(self, profile: Mapping[str, Any], device: str, phase: Phase, shape: Shape) -> bool:
        wanted = (phase, shape.batch, shape.tokens, shape.dtype, device, self.config.policy)
        return wanted == tuple(profile[name] for name in KEY)

    def _fit(self, profiles: Sequence[Mapping[str, Any]], phase: Phase, shape: Shape) -> Fit:
        rows, groups = [], []
        for profile in profiles:
            genome = parse(Architecture, profile["architecture"], "a profile's architecture")
            rates = profile.get("rates") or None
            rows.append(_features(self.analytic.estimate(genome, shape, None, rates), phase, shape))
            groups.append(repr(genome))
        x, names = np.array(rows), sorted(set(groups))
        if len(names) < FEWEST:
            raise ConfigError(
                f"cost model 'measured' has {phase} profiles of {len(names)} architectures at this shape and needs {FEWEST}; "
                "profile more, or use 'roofline'."
            )
        seconds = np.array([p["seconds_per_token"] for p in profiles]) * _tokens(phase, shape)
        fold = np.array([names.index(g) % FOLDS for g in groups])
        off = []
        for k in range(FOLDS):
            held = fold == k
            if held.any():
                weights = _non_negative(_with_constant(x[~held]), seconds[~held])
                off += list(np.abs(_with_constant(x[held]) @ weights / seconds[held] - 1))
        weights = _non_negative(_with_constant(x), seconds)
        return Fit(weights, x.min(0), x.max(0), float(np.median(off)))

    def _check_range(self, point: np.ndarray, fit: Fit, phase: Phase) -> None:
        if self.config.extrapolate:
            return
        for name, value, low, high in zip(FEATURES, point, fit.low, fit.high, strict=True):
            if not low * (1 - MARGIN) <= value <= high * (1 + MARGIN):
                raise ConfigError(
                    f"cost model 'measured' saw {phase} passes of {low:.3g} to {high:.3g} {name}, and this one has {value:.3g}: "
                    "set extrapolate to answer all the same, or use 'roofline'."
                )


def _tokens(phase: Phase, shape: Shape) -> int:
    return shape.batch * (1 if phase == "decode" else shape.tokens)


def _features(ledger: Ledger, phase: Phase, shape: Shape) -> np.ndarray:
    """FLOPs, weight bytes, other bytes and runs of one pass."""
    tokens, parts = _tokens(phase, shape), ledger.parts
    runs = float(sum(part.runs for part in parts))
    if phase == "decode":
        state = sum(part.state_traffic_bytes_per_token for part in parts)
        weights = ledger.decode_traffic_bytes_per_token - state
        return np.array([ledger.executed_decode_flops_per_token * tokens, weights, state * tokens, runs])
    flops = ledger.executed_training_flops_per_token
    if phase == "prefill":
        flops = ledger.executed_prefill_flops_per_token
    weights = float(sum(part.weight_reads for part in parts) * shape.dtype_bytes)
    return np.array([flops * tokens, weights, ledger.kept_bytes_per_token * tokens, runs])


def _with_constant(x: np.ndarray) -> np.ndarray:
    return np.concatenate((x, np.ones((*x.shape[:-1], 1))), -1)


def _non_negative(x: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Weights >= 0 with the least squared relative error, found over columns of one length."""
    a = x / seconds[:, None]
    scale = np.linalg.norm(a, axis=0)
    scale[scale == 0] = 1.0
    weights, _ = nnls(a / scale, np.ones(len(a)))
    found: np.ndarray = weights / scale
    return found
