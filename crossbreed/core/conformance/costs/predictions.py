"""Predicted times, of cost models that know a device."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from statistics import median

from crossbreed.core.conformance.case import Case, Sizes
from crossbreed.core.conformance.costs import device, laws  # noqa: F401  (the laws stand before these)
from crossbreed.core.conformance.costs.models import BOTH, layers
from crossbreed.core.conformance.costs.subject import CostSubject
from crossbreed.core.conformance.rule import Broken, require, rule
from crossbreed.core.genome import Architecture
from crossbreed.core.ledger import Phase, Prediction, Shape

SHAPE = Shape(2, 32)
PROFILED, HELD_OUT = 40, 20
FACTOR = 8.0
"""By how much a prediction may miss the simulated device's time; a wrong unit misses by 1000."""
TRUE = 2.0
"""How many times the declared error the real one may be: both are medians over few architectures."""


def _timeless(subject: CostSubject) -> str:
    return (
        ""
        if subject.descriptor.needs_device
        else "it states that it needs no device, so it predicts no times"
    )


def _unmeasured(subject: CostSubject) -> str:
    if _timeless(subject):
        return _timeless(subject)
    (prediction,) = _predicted(subject, Case(), [layers(*BOTH)])
    return "" if prediction.relative_error else "it declares no error of its predictions"


def _predicted(
    subject: CostSubject,
    case: Case,
    architectures: Iterable[Architecture],
    phases: tuple[Phase, ...] = device.PHASES,
) -> list[Prediction]:
    """What one cost model predicts for each."""
    model, known = subject.model(case.settings), subject.device(SHAPE, PROFILED, phases)
    found = [model.estimate(architecture, SHAPE, known).prediction for architecture in architectures]
    if None in found:
        raise Broken("it needs a device, but predicts no time")
    return [prediction for prediction in found if prediction is not None]


@rule(
    "cost",
    "seconds",
    says="Predicted times are seconds per token of the device that was named, and more blocks never take less.",
    measured="Models of 1 to 8 pairs of blocks on a simulated device with known ceilings and 40 noisy profiles: within a factor of 8 "
    "of its times, for every phase that is predicted, and rising.",
    faults=("F13", "F16"),
    unless=_timeless,
    after=("complete",),
)
def seconds(subject: CostSubject, case: Case) -> None:
    series = [layers(*(BOTH * count)) for count in (1, 2, 4, 8)]
    found = _predicted(subject, case, series)
    for prediction, architecture in zip(found, series, strict=True):
        require(
            prediction.device == device.NAME,
            f"times of {device.NAME!r} are said to be of {prediction.device!r}",
        )
        require(len(prediction.seconds_per_token) > 0, "it predicts no phase")
        for phase in device.PHASES:
            if phase in prediction.seconds_per_token:
                said = prediction.seconds_per_token[phase]
                true = device.seconds_per_token(architecture, SHAPE, phase)
                near = true / FACTOR <= said <= true * FACTOR
                require(
                    near,
                    f"{phase} is said to take {said:.3g} s a token, and takes {true:.3g}",
                    said=said,
                    takes=true,
                )
    for predicted in found[0].seconds_per_token:
        times = [prediction.seconds_per_token[predicted] for prediction in found]
        require(times == sorted(times), f"more blocks make {predicted} faster: {times}")


@rule(
    "cost",
    "declared-error",
    says="The declared error of predictions is that on profiles which were not seen.",
    measured="Of 60 architectures on the simulated device, 40 are shown as profiles and 20 kept: the median relative error on these may "
    "be twice the declared one and 1 %.",
    faults=("F13",),
    sizes=Sizes({"phase": (0, 1, 2)}, {"phase": (2,)}),
    unless=_unmeasured,
    after=("seconds",),
)
def declared_error(subject: CostSubject, case: Case) -> None:
    phase = device.PHASES[case["phase"]]
    off, declared = [], 0.0
    predictions = _predicted(subject, case, _kept(), (phase,))
    for number, (architecture, prediction) in enumerate(zip(_kept(), predictions, strict=True)):
        if phase not in prediction.relative_error:
            return
        declared = prediction.relative_error[phase]
        measured = device.measured(architecture, SHAPE, phase, PROFILED + number)
        off.append(abs(prediction.seconds_per_token[phase] / measured - 1))
    real = median(off)
    require(
        real <= TRUE * declared + 0.01,
        f"the error of {phase} is declared to be {declared:.1%}; on {len(off)} profiles kept from it, it is {real:.1%}",
        declared=declared,
        real=real,
    )


@cache
def _kept() -> tuple[Architecture, ...]:
    """Architectures of the same kind as those shown, and none of them."""
    shown = device.profiled(PROFILED)
    return tuple(a for a in device.profiled(PROFILED + HELD_OUT, seed=1) if a not in shown)[:HELD_OUT]
