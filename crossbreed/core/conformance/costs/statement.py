"""What a ledger says: complete, in its units, of the shape it was asked for, the same each time."""

from __future__ import annotations

import math
from typing import Any

from crossbreed.core.conformance import probes
from crossbreed.core.conformance.case import Case
from crossbreed.core.conformance.costs import agreement  # noqa: F401  (its rules stand before these)
from crossbreed.core.conformance.costs.models import SAMPLES, layers
from crossbreed.core.conformance.costs.subject import COUNTS, CostSubject
from crossbreed.core.conformance.rule import Broken, require, rule
from crossbreed.core.conformance.stated import register_settings_rule
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Router
from crossbreed.core.ledger import DTYPE_BYTES, Shape

register_settings_rule("cost")


@rule(
    "cost",
    "complete",
    says="A ledger is of the shape it was asked for, every number in it is finite and not negative, and rates are distributions.",
    measured="Seven small models at 1 x 1 and 3 x 100 tokens; every routed site of the built model has rates.",
)
def complete(subject: CostSubject, case: Case) -> None:
    for name, architecture in SAMPLES.items():
        sites = set(subject.built(architecture).sites())
        for batch, tokens in ((1, 1), (3, 100)):
            asked: dict[str, Any] = {"batch": batch, "tokens": tokens, "dtype": "bfloat16"}
            ledger = subject.ledger(case.settings, architecture, **asked)
            for field, wanted in asked.items():
                found = getattr(ledger, field)
                require(found == wanted, f"asked for {field} {wanted}, the ledger of {name!r} has {found}")
            for field in COUNTS:
                value = float(getattr(ledger, field))
                require(0 <= value < math.inf, f"{field} of {name!r} is {value}", value=value)
            for site, rates in ledger.rates.items():
                whole = min(rates) >= 0 and math.isclose(sum(rates), 1, abs_tol=1e-6)
                require(whole, f"rates {rates} of {name!r} at {site!r} are no distribution")
            named = {_without_depth(site) for site in ledger.rates}
            require(
                named == sites,
                f"{name!r} decides at {sorted(sites)}, the ledger has rates of {sorted(named)}",
            )


@rule(
    "cost",
    "units",
    says="Sizes are bytes and add up: weights are parameters times the bytes of the dtype, memory is weights and state.",
    measured="Three small models in every dtype, all of whose parameters are active; non-embedding ones are all but embedding and head.",
    after=("complete", "parameters"),
)
def units(subject: CostSubject, case: Case) -> None:
    for name in ("untied", "layered", "recurrent"):
        architecture = SAMPLES[name]
        for dtype, size in DTYPE_BYTES.items():
            ledger = subject.ledger(case.settings, architecture, dtype=dtype)
            weights = ledger.parameters * size
            require(
                ledger.weight_bytes == weights,
                f"{ledger.parameters} parameters of {name!r} in {dtype} are {weights} bytes, not {ledger.weight_bytes:g}",
                stated=ledger.weight_bytes,
                counted=weights,
            )
            memory = ledger.weight_bytes + ledger.state_bytes
            require(
                math.isclose(ledger.memory_bytes, memory),
                f"weights and state of {name!r} in {dtype} are {memory:g} bytes, its memory {ledger.memory_bytes:g}",
                stated=ledger.memory_bytes,
                counted=memory,
            )
            model = subject.built(architecture)
            outside = model.embedding.weight.numel() * (1 if model.head is None else 2)
            for part, count in (
                ("active_parameters", ledger.parameters),
                ("non_embedding_parameters", ledger.parameters - outside),
            ):
                stated = getattr(ledger, part)
                require(
                    stated == count,
                    f"{name!r} has {count} {part}, the ledger {stated}",
                    stated=stated,
                    counted=count,
                )


@rule(
    "cost",
    "per-token",
    says="What is said per token and per sequence does not depend on how many sequences there are.",
    measured="Three small models in batches of 1 and 5 at the same length, exactly.",
    faults=("F15",),
    after=("complete",),
)
def per_token(subject: CostSubject, case: Case) -> None:
    same = [name for name in COUNTS if name not in ("batch_state_bytes", "training_peak_bytes")]
    for name in ("two blocks", "recurrent", "halting"):
        architecture = SAMPLES[name]
        one = subject.ledger(case.settings, architecture, batch=1)
        five = subject.ledger(case.settings, architecture, batch=5)
        for field in same:
            a, b = getattr(one, field), getattr(five, field)
            require(
                math.isclose(a, b),
                f"{field} of {name!r} is {a:g} in a batch of 1 and {b:g} in one of 5",
                one=a,
                five=b,
            )
        require(
            math.isclose(five.batch_state_bytes, 5 * one.state_bytes),
            f"five states of {one.state_bytes:g} bytes are not {five.batch_state_bytes:g}",
        )


@rule(
    "cost",
    "repeatable",
    says="An estimate depends on its question alone, not on what was asked before.",
    measured="Three small models at three shapes by one cost model, forwards and backwards, against a fresh one each.",
    after=("complete",),
)
def repeatable(subject: CostSubject, case: Case) -> None:
    model = subject.model(case.settings)
    shapes = [Shape(tokens=24), Shape(tokens=25), Shape(tokens=24, dtype="bfloat16")]
    asked = [(name, SAMPLES[name], shape) for name in ("untied", "recurrent", "gated") for shape in shapes]
    for name, architecture, shape in [*asked, *reversed(asked)]:
        found = subject.ask(model, architecture, shape)
        fresh = subject.ledger(case.settings, architecture, **shape._asdict())
        for field in (*COUNTS, "rates"):
            a, b = getattr(found, field), getattr(fresh, field)
            require(
                a == b,
                f"{field} of {name!r} at {shape.tokens} tokens is {a} after other questions, {b} before",
            )


@rule(
    "cost",
    "refusals",
    says="What cannot be costed is refused by name: unknown parts, settings that do not exist, rates of no site, a device that is "
    "needed and missing.",
    measured="Each must be a ConfigError.",
    after=("complete",),
)
def refusals(subject: CostSubject, case: Case) -> None:
    known = layers(probes.FADING, gate=Router(name=probes.SIGN))
    wrong = {
        "an unknown mixer": (layers("conformance.nothing"), None),
        "an unknown router": (layers(probes.FADING, gate=Router(name="conformance.nothing")), None),
        "a setting that does not exist": (known.with_params((0, 0, 0), no_setting=3), None),
        "a rate of a site that does not exist": (known, {"7.7.7.gate": (0.5, 0.5)}),
        "rates that do not sum to 1": (known, {"0.0.0.gate": (0.5, 0.6)}),
    }
    for what, (architecture, rates) in wrong.items():
        try:
            subject.ledger(case.settings, architecture, rates=rates)
        except ConfigError:
            continue
        raise Broken(f"{what} is costed without a word")
    if subject.descriptor.needs_device:
        try:
            subject.model(case.settings).estimate(known, Shape(tokens=24))
        except ConfigError:
            return
        raise Broken("it states that it needs a device, but answers without one")


def _without_depth(site: str) -> str:
    head, _, kind = site.rpartition(".")
    return f"{head.rpartition('.')[0]}.{kind}" if head else site
