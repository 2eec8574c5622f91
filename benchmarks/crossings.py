"""From which context on a gated model decodes faster than its rivals, from rows of ``bench_decode``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

GATED = ("AMOR, entropy gate", "AMOR, distilled router")
RIVALS = ("blocks always on", "serial hybrid")


def crossings(record: dict[str, Any], vocab: int, d_model: int) -> Iterator[dict[str, Any]]:
    """Rows with the crossing of every gated arm and rival, and what the formulas say of the native probe."""
    for part in ("crossover", "launched"):
        rows = record.get(part, [])
        batches, rates = ({row[key] for row in rows} for key in ("batch", "rate"))
        for batch, rival, arm, rate in itertools.product(
            sorted(batches), RIVALS, GATED, sorted(rates - {None}, key=Fraction)
        ):
            own, other = (
                {r["context"]: r["tokens_per_s"] for r in rows if (r["arm"], r["batch"], r["rate"]) == key}
                for key in ((arm, batch, rate), (rival, batch, None))
            )
            gains = {context: own[context] / other[context] for context in sorted(own.keys() & other.keys())}
            if gains:
                yield {
                    "part": part,
                    "arm": arm,
                    "rival": rival,
                    "batch": batch,
                    "rate": rate,
                    "contexts": list(gains),
                    "gains": list(gains.values()),
                    **crossing(gains),
                    **formulas(vocab, d_model, batch, float(Fraction(rate))),
                }


def crossing(gains: dict[int, float]) -> dict[str, Any]:
    """Where the gain stays above 1, by interpolation of logarithms.

    ``at`` so many tokens, or ``below`` or ``above`` all contexts, which rise.
    """
    contexts, logs = list(gains), [math.log(gain) for gain in gains.values()]
    if logs[-1] <= 0:
        return {"from": "above", "tokens": contexts[-1]}
    last = max((i for i, log in enumerate(logs) if log <= 0), default=None)
    if last is None:
        return {"from": "below", "tokens": contexts[0]}
    share = -logs[last] / (logs[last + 1] - logs[last])
    low, high = (math.log(context) for context in contexts[last : last + 2])
    return {"from": "at", "tokens": round(math.exp(low + share * (high - low)))}


def formulas(vocab: int, d_model: int, batch: int, rate: float) -> dict[str, float | None]:
    """Contexts at which a probe of every token costs what skipped blocks save: in FLOPs, and in bytes, where rows share the probe.

    Source: amor.md, section 7. At rate 1 nothing is ever saved.
    """
    if rate == 1:
        return {"formula_flops": None, "formula_bytes": None}
    return {
        "formula_flops": vocab / (2 * (1 - rate)) - d_model,
        "formula_bytes": vocab / (2 * batch * (1 - rate)),
    }
