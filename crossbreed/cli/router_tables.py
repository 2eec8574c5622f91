"""Router analytics as tables. ``docs/router-analytics.md`` defines every number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from crossbreed.cli.output import si, table

if TYPE_CHECKING:
    from crossbreed.core.search.analysed import RunAnalytics

BARS = "▁▂▃▄▅▆▇█"
"""Levels of a share from 0 to 1 along the text."""
Numbers = dict[str, Any]


def tables(found: RunAnalytics) -> Iterator[Table]:
    """Every table that the findings fill, most asked for first."""
    if "decisions" in found.kinds:
        yield _rates(found, found.kinds["decisions"])
        yield from _layers(found.kinds["decisions"])
        yield _classes(found.kinds["decisions"])
        yield from _labels(found.kinds["decisions"])
        yield _positions(found.kinds["decisions"])
        yield _losses(found.kinds["decisions"])
        yield from _entropies(found.kinds["decisions"])
    kinds: dict[str, Callable[[Numbers], Iterator[Table]]] = {
        "agreement": _agreement,
        "switches": _switches,
        "experts": _experts,
        "depth_attention": _depth_attention,
    }
    for kind, make in kinds.items():
        if kind in found.kinds:
            yield from make(found.kinds[kind])


def _rates(found: RunAnalytics, decisions: Numbers) -> Table:
    made = table(
        f"Routers of {escape(found.run)} at {escape(found.point)}",
        ["site", "router", "choices", ("asked", "right"), ("shares", "right"), ("all rows", "right")],
        caption=f"{decisions['rows']} evaluation rows, {decisions['tokens']} tokens, after {si(found.tokens)} tokens of "
        "training. Shares of the asked tokens per choice; all rows: as stored with the evaluation.",
    )
    for site in decisions["sites"]:
        made.add_row(
            site["site"],
            escape(site["router"]),
            escape(" / ".join(site["choices"])),
            str(site["asked"]),
            _shares(site["shares"]),
            _shares(found.realised.get(site["site"])),
        )
    return made


def _layers(decisions: Numbers) -> Iterator[Table]:
    """Only where a site stands at several depths; elsewhere it would repeat the sites."""
    if all(layer["depths"] == 1 for layer in decisions["layers"]):
        return
    made = table(
        "By layer, all depths", ["layer", ("depths", "right"), ("asked", "right"), ("shares", "right")]
    )
    for layer in decisions["layers"]:
        made.add_row(layer["layer"], str(layer["depths"]), str(layer["asked"]), _shares(layer["shares"]))
    yield made


def _classes(decisions: Numbers) -> Table:
    sites = decisions["sites"]
    names = [entry["class"] for entry in sites[0]["classes"]]
    made = table("By token class", ["site", *((escape(name), "right") for name in names)])
    for site in sites:
        made.add_row(site["site"], *(_shares(entry["shares"]) for entry in site["classes"]))
    return made


def _labels(decisions: Numbers) -> Iterator[Table]:
    """Only where the task gives labels."""
    if not decisions["sites"][0]["labels"]:
        return
    made = table(
        "What choices above 0 find",
        ["site", "label", ("tokens", "right"), ("precision", "right"), ("recall", "right")],
        caption="tokens: share of the asked tokens that have the label, which is the precision of chance.",
    )
    for site in decisions["sites"]:
        for n, entry in enumerate(site["labels"]):
            shares = (_number(entry[name]) for name in ("share", "precision", "recall"))
            made.add_row(site["site"] if n == 0 else "", escape(entry["label"]), *shares)
    yield made


def _positions(decisions: Numbers) -> Table:
    width = decisions["sites"][0]["positions"]["width"]
    made = table(
        "Along the text",
        ["site", "share of choices above 0"],
        caption=f"One bar for {width} position{'s' if width > 1 else ''}, from {BARS[0]} none to {BARS[-1]} all; a dot where "
        "nothing was asked.",
    )
    for site in decisions["sites"]:
        made.add_row(site["site"], "".join(_bar(shares) for shares in site["positions"]["shares"]))
    return made


def _losses(decisions: Numbers) -> Table:
    made = table(
        "Choice and loss",
        ["site", "choice", ("scored", "right"), ("loss, nats", "right"), ("r", "right"), ("rank r", "right")],
        caption="Over scored tokens that were asked. r: point-biserial correlation of the choice with the token's loss; rank "
        "r: the same of ranks.",
    )
    for site in decisions["sites"]:
        loss = site["loss"]
        related = {entry["choice"]: entry for entry in loss["correlations"]}
        for n, name in enumerate(site["choices"]):
            entry = related.get(n, {})
            made.add_row(
                site["site"] if n == 0 else "",
                escape(name),
                str(loss["tokens"][n]),
                _number(loss["mean_nats"][n]),
                _number(entry.get("pearson")) if n else "",
                _number(entry.get("rank")) if n else "",
            )
    return made


def _entropies(decisions: Numbers) -> Iterator[Table]:
    sites = [site for site in decisions["sites"] if site["entropy"] is not None]
    if not sites:
        return
    made = table(
        "Entropy, choice and loss",
        ["site", ("entropy", "right"), ("asked", "right"), ("shares", "right"), ("loss, nats", "right")],
        caption="Normalised entropy of the output head as the router reads it, in tenths of the asked tokens.",
    )
    for site in sites:
        entropy, related = site["entropy"], site["entropy"]["with_loss"]
        made.add_row(
            site["site"],
            f"mean {_number(entropy['mean'])}",
            "",
            "",
            f"r {_number(related['pearson'])}, rank {_number(related['rank'])}",
        )
        for entry in entropy["bins"]:
            span = f"{entry['low']:.4f} to {entry['high']:.4f}"
            made.add_row("", span, str(entry["asked"]), _shares(entry["shares"]), _number(entry["mean_nats"]))
    yield made


def _agreement(found: Numbers) -> Iterator[Table]:
    made = table(
        "Full forward and one-token decode",
        ["site", ("decisions", "right"), ("flips", "right"), ("agreement", "right")],
        caption=f"{found['rows']} rows of {found['tokens']} tokens, both deciding freely. Logits differ by at most "
        f"{found['max_logit_difference']:.2g}; the largest is {found['max_logit']:.3g}.",
    )
    for site in found["sites"]:
        made.add_row(site["site"], str(site["decisions"]), str(site["flips"]), _percent(site["agreement"]))
    made.add_section()
    rate = found["flip_rate"]
    overall = None if rate is None else 1 - rate
    made.add_row("all", str(found["decisions"]), str(found["flips"]), _percent(overall))
    yield made


def _switches(found: Numbers) -> Iterator[Table]:
    names = [escape(name) for name in found["choices"]]
    columns = [f"{names[entry['mode']]} alone" for entry in found["alone"]]
    pairs = [f"{names[entry['before']]} to {names[entry['after']]}" for entry in found["switched"]]
    made = table(
        f"Loss around a switch at position {found['position']}",
        [("distance", "right"), ("scored", "right"), *((heading, "right") for heading in (*columns, *pairs))],
        caption=f"{found['rows']} rows; mean loss in nats over {found['width']} position"
        f"{'s' if found['width'] > 1 else ''} from each distance on. In brackets: above the new mode alone.",
    )
    for n, distance in enumerate(found["distances"]):
        if found["scored"][n]:
            alone = [_number(entry["mean_nats"][n]) for entry in found["alone"]]
            switched = []
            for entry in found["switched"]:
                excess = f" ({entry['excess_nats'][n]:+.3f})" if distance >= 0 else ""
                switched.append(_number(entry["mean_nats"][n]) + excess)
            made.add_row(str(distance), str(found["scored"][n]), *alone, *switched)
    yield made


def _experts(found: Numbers) -> Iterator[Table]:
    over_depths = table(
        "Diversity over depths", ["mixer", "part", ("min", "right"), ("median", "right"), ("max", "right")]
    )
    for spread in found["diversity"]:
        numbers = (_number(spread[name]) for name in ("min", "median", "max"))
        over_depths.add_row(spread["mixer"], escape(spread["part"]), *numbers)
    made = table(
        "Experts by depth",
        [
            "site",
            "part",
            ("slots", "right"),
            ("diversity", "right"),
            ("of", "right"),
            "distance to each depth",
        ],
        caption="Diversity: exp(entropy) of the load. Distance: Jensen-Shannon, 0 to 1.",
    )
    reuse = table(
        "Experts used at many depths",
        [
            "pool",
            ("depths", "right"),
            ("experts", "right"),
            ("used once", "right"),
            ("at 0.4 L", "right"),
            ("at 7", "right"),
        ],
        caption=f"Used at a depth: with {found['tau']:g} of the mean share or more; used once: at least one slot at any depth.",
    )
    for pool in found["pools"]:
        part = escape(pool["part"])
        for n, site in enumerate(pool["sites"]):
            apart = " ".join("-" if d is None else f"{d:.2f}" for d in pool["distance"][n])
            slots, diversity = f"{pool['slots'][n]:.0f}", _number(pool["diversity"][n])
            made.add_row(site, part, slots, diversity, str(pool["experts"]), apart)
        once = sum(depths > 0 for depths in pool["used_once"]) / pool["experts"]
        shares = (once, pool["share_used_at_04"], pool["share_used_at_7"])
        name = f"{pool['sites'][0]}{f' {part}' if part else ''}"
        reuse.add_row(name, str(len(pool["sites"])), str(pool["experts"]), *map(_percent, shares))
    yield made
    yield over_depths
    yield reuse


def _depth_attention(found: Numbers) -> Iterator[Table]:
    for mixer in found["mixers"]:
        made = table(
            f"Attention over depths of {mixer['mixer']}",
            [("head", "right"), "from", "mean weight on depth 0, 1, ..."],
        )
        for head, rows in enumerate(mixer["weights"]):
            for site, weights in zip(mixer["sites"], rows, strict=True):
                made.add_row(str(head), site, _weights(weights))
        yield made


def _weights(weights: Sequence[float] | None) -> str:
    return "-" if weights is None else " ".join(f"{weight:.2f}" for weight in weights)


def _shares(shares: Sequence[float] | None) -> str:
    return "-" if shares is None else " / ".join(f"{share:.4f}" for share in shares)


def _bar(shares: Sequence[float] | None) -> str:
    return "·" if shares is None else BARS[round((1 - shares[0]) * (len(BARS) - 1))]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
