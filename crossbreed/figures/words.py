"""Numbers and names as people read them: units, intervals, and names that are shown as text whatever they hold."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from typing import Any

from crossbreed.core.ledger import QUANTITIES
from crossbreed.core.search.candidates import SCORE, Candidate, SpeedKey

UNITS = {
    SCORE: "score",
    "decode_tokens_per_s": "decode, tokens/s",
    "prefill_tokens_per_s": "prefill, tokens/s",
    "training_flops_per_token": "training FLOPs/token",
    "prefill_flops_per_token": "prefill FLOPs/token",
    "decode_flops_per_token": "decode FLOPs/token",
    "parameters": "parameters",
    "active_parameters": "active parameters",
    "non_embedding_parameters": "non-embedding parameters",
    "state_bytes": "decode state, bytes",
    "memory_bytes": "memory, bytes",
    "training_peak_allocated_bytes": "measured training peak, allocated, bytes",
    "training_peak_reserved_bytes": "measured training peak, reserved, bytes",
}
"""Objectives and ledger quantities with their units, for axes and column headings."""

CONVENTIONS = (
    "One multiply-add is 2 FLOPs; matrix products, scores, recurrences, convolutions and probes count. Algorithmic FLOPs "
    "take the causal half exactly; executed FLOPs are what the reference path issues. Training is forward plus backward. "
    "Training and prefill are the mean over the sequence, decode is the next token after the whole context. Memory is "
    "weights plus the decode state of one sequence."
)


def code(text: str) -> str:
    """Markdown that shows ``text`` letter for letter, as code: names are never read as Markdown or HTML."""
    flat = " ".join(text.split()) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    pad = " " if "`" in flat else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def chart_text(text: str) -> str:
    """``text`` for Plotly, which reads a little HTML."""
    return html.escape(text, quote=False)


def si(value: float | None, digits: int = 3) -> str:
    """A number with a decimal prefix: 1234567 -> ``1.23M``; an unknown one is a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    rounded = float(f"{value:.{digits}g}")
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(rounded) >= limit:
            return f"{float(f'{rounded / limit:.{digits}g}'):g}{suffix}"
    return f"{rounded:g}"


def size(value: float | None) -> str:
    """Bytes with a binary prefix: 1536 -> ``1.5 KiB``."""
    if value is None or not math.isfinite(value):
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.4g}\N{NO-BREAK SPACE}{unit}"
        value /= 1024
    return f"{value:.4g}\N{NO-BREAK SPACE}TiB"


def number(value: float | None) -> str:
    """A measured number to be compared with its like: ``0.962``, ``1,201``, ``1.234M``."""
    if value is None or not math.isfinite(value) or abs(value) >= 1e6:
        return si(value, 4)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def amount(name: str, value: float | None) -> str:
    """A ledger quantity or objective with the prefix its unit takes."""
    if name.endswith("_bytes"):
        return size(value)
    return si(value, 4) if name in QUANTITIES else number(value)


def short_name(quantity: str) -> str:
    """A quantity without its unit where the amount carries it: ``memory``."""
    return UNITS.get(quantity, quantity).removesuffix(", bytes")


def seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def percent(share: float | None) -> str:
    """A signed share: 0.0123 -> ``+1.23%``."""
    return "–" if share is None else f"{share:+.2%}"


def interval(candidate: Candidate, name: str) -> str:
    """The 95% interval of an objective: ``0.951 – 0.973``; below 3 seeds, or for a counted quantity, a dash."""
    found = candidate.intervals[name]
    return "–" if found is None else f"{number(found.low)} – {number(found.high)}"


def mean_with_interval(candidate: Candidate, name: str) -> str:
    """``0.962 [0.951 – 0.973]``, or the mean alone where there is no interval."""
    mean = amount(name, candidate.means[name])
    return mean if candidate.intervals[name] is None else f"{mean} [{interval(candidate, name)}]"


def key_in_words(key: SpeedKey) -> str:
    """What a speed was measured under."""
    phase, batch, tokens, dtype, device, policy, compiled = key
    how = "compiled" if compiled else "not compiled"
    return f"{phase}, batch {batch}, {tokens} tokens, {dtype}, on {device}, {policy} backends, {how}"


def raced(environment: Mapping[str, Any]) -> dict[str, str]:
    """Of the mixers whose backends a run has timed: how long each backend takes, the fastest first, and which were left out."""
    found = {}
    for speed in environment.get("speeds") or ():
        shape = f"{speed['batch']} x {speed['tokens']} tokens in {speed['dtype']}"
        order = sorted(speed["seconds"].items(), key=lambda one: one[1])
        found[f"{speed['mixer']}, a training pass of {shape}"] = ", ".join(
            [f"{served} {1e3 * seconds:.3g} ms" for served, seconds in order]
            + [f"{served} left out: {why}" for served, why in speed["left_out"].items()]
        )
    return found


def counts(states: Mapping[str, int]) -> str:
    """``3 done, 1 failed``."""
    return ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in states.items() if n)
