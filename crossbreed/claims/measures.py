"""Numbers of one run by name, from what a record keeps of it.

========================  =====================================================================================
``score``                 what its task judges by; or any metric of the task, such as ``loss_nats``
``loss:A+B``              mean loss in nats of the labelled tokens of classes A and B; ``right:A+B``: share of them that is right
``rate``                  mean share over routed sites and depths of the tokens that took more than the cheapest choice
``decode_flops``          realised algorithmic FLOPs of the next token (``prefill_flops``: of a token of the pass)
``recall:A+B``            share of the tokens of classes A and B at which gates fired
``precision:A+B``         share of what fired that belongs to classes A and B
``entropy_drop``          mean entropy read by the first gate less that read by the last
``log2_tokens_to:X``      log2 of the training tokens at which the score first reached X; all of them where it never did
``experts.diversity``     exp(entropy) of the experts' use at a depth, the median over depths
``experts.reuse``         share of experts used at 0.4 L depths or more
``switch:A>B``            mean loss after a switch from mode A to B at half the text, less that of mode B from the start
========================  =====================================================================================

Each of those up to the FLOPs may end in ``@POINT``: at another operating point than the model's own decisions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from crossbreed.core.errors import ConfigError

OWN = "own"
BY_CLASS = {"right": 1, "loss": 2}
"""Quantities of token classes, and their place beside the number of labelled tokens."""
AT_POINTS = {"decode_flops": "decode_flops_per_token", "prefill_flops": "prefill_flops_per_token"}


def measured(run: Mapping[str, Any], quantity: str) -> float | None:
    """The number, or None where this run has none (it diverged, or nothing of the kind was seen). Raises ConfigError for a
    quantity or an operating point that no run of this kind has."""
    if run["state"] != "done":
        return None
    name, _, point = quantity.partition("@")
    name, _, argument = name.partition(":")
    if name in SEEN:
        return SEEN[name](run, argument)
    judged = run["points"].get(point or OWN)
    if judged is None:
        raise ConfigError(
            f"quantity {quantity!r} names operating point {point!r}; run {run['arm']!r} has {sorted(run['points'])}."
        )
    if name in BY_CLASS and argument:
        return _of_classes(judged["classes"], argument, BY_CLASS[name])
    if name == "score":
        return float(judged["score"])
    if name == "rate":
        return rate(judged["rates"])
    if name in AT_POINTS:
        return float(judged["ledger"][AT_POINTS[name]])
    if name not in judged["metrics"]:
        known = ["score", "rate", *AT_POINTS, *SEEN, *judged["metrics"]]
        raise ConfigError(f"unknown quantity {quantity!r}; known: {', '.join(sorted(known))}.")
    return float(judged["metrics"][name])


def _of_classes(classes: Mapping[str, list[float]], asked: str, fact: int) -> float | None:
    """Mean of a fact over the labelled tokens of some classes; None where there is none. Raises ConfigError for an unknown one."""
    names = asked.split("+")
    for name in names:
        if name not in classes:
            raise ConfigError(f"unknown token class {name!r}; this task has {', '.join(classes)}.")
    labelled = sum(classes[name][0] for name in names)
    return sum(classes[name][fact] for name in names) / labelled if labelled else None


def rate(rates: Mapping[str, list[float]]) -> float | None:
    """Mean over sites of the share that took more than choice 0; None where nothing is routed."""
    return statistics.fmean(1.0 - shares[0] for shares in rates.values()) if rates else None


def compact(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """What a record keeps of router analytics (``core.lab.analytics``): enough for the quantities above."""
    found: dict[str, Any] = {}
    if "decisions" in kinds:
        found["sites"] = {
            site["site"]: {
                "kind": site["kind"],
                "entropy": None if site["entropy"] is None else site["entropy"]["mean"],
                "classes": {
                    c["class"]: [c["asked"], 1.0 - c["shares"][0] if c["asked"] else 0.0]
                    for c in site["classes"]
                },
            }
            for site in kinds["decisions"]["sites"]
        }
    if "experts" in kinds:
        # Those of the channel; projections have fewer.
        most = max(pool["experts"] for pool in kinds["experts"]["pools"])
        pools = [pool for pool in kinds["experts"]["pools"] if pool["experts"] == most]
        found["experts"] = {
            "diversity": [d for pool in pools for d in pool["diversity"] if d is not None],
            "reuse": [pool["share_used_at_04"] for pool in pools],
        }
    if "switches" in kinds:
        found["switches"] = {
            f"{kinds['switches']['choices'][s['before']]}>{kinds['switches']['choices'][s['after']]}": _after(
                kinds["switches"], s["excess_nats"]
            )
            for s in kinds["switches"]["switched"]
        }
    return found


def _after(switches: Mapping[str, Any], excess: list[float | None]) -> float | None:
    """Mean excess over the scored tokens from the switch on."""
    parts = [
        (count, value)
        for distance, count, value in zip(switches["distances"], switches["scored"], excess, strict=True)
        if distance >= 0 and value is not None and count
    ]
    total = sum(count for count, _ in parts)
    return sum(count * value for count, value in parts) / total if total else None


def _gates(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [site for site in run["seen"].get("sites", {}).values() if site["kind"] == "gate"]


def _fired(site: Mapping[str, Any], classes: list[str] | None) -> tuple[float, float]:
    """(tokens, tokens at which it fired) of some classes; of all for None. Raises ConfigError for an unknown one."""
    known = site["classes"]
    for name in classes or ():
        if name not in known:
            raise ConfigError(f"unknown token class {name!r}; this task has {', '.join(known)}.")
    chosen = [known[name] for name in (known if classes is None else classes)]
    return sum(asked for asked, _ in chosen), sum(asked * share for asked, share in chosen)


def _recall(run: Mapping[str, Any], classes: str) -> float | None:
    shares = [fired / asked for asked, fired in (_fired(s, classes.split("+")) for s in _gates(run)) if asked]
    return statistics.fmean(shares) if shares else None


def _precision(run: Mapping[str, Any], classes: str) -> float | None:
    shares = [
        _fired(site, classes.split("+"))[1] / fired
        for site in _gates(run)
        if (fired := _fired(site, None)[1])
    ]
    return statistics.fmean(shares) if shares else None


def _entropy_drop(run: Mapping[str, Any], _: str) -> float | None:
    entropies = [site["entropy"] for site in _gates(run) if site["entropy"] is not None]
    return entropies[0] - entropies[-1] if len(entropies) > 1 else None


def _log2_tokens_to(run: Mapping[str, Any], level: str) -> float:
    curve = run["curve"]
    return math.log2(next((tokens for tokens, score in curve if score >= float(level)), curve[-1][0]))


def _experts(run: Mapping[str, Any], name: str, mean: Callable[[list[float]], float]) -> float | None:
    values = run["seen"].get("experts", {}).get(name)
    return mean(values) if values else None


SEEN: dict[str, Callable[[Mapping[str, Any], str], float | None]] = {
    "recall": _recall,
    "precision": _precision,
    "entropy_drop": _entropy_drop,
    "log2_tokens_to": _log2_tokens_to,
    "experts.diversity": lambda run, _: _experts(run, "diversity", statistics.median),
    "experts.reuse": lambda run, _: _experts(run, "reuse", statistics.fmean),
    "switch": lambda run, pair: run["seen"].get("switches", {}).get(pair),
}
