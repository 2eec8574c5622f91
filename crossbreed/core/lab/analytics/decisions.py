"""Where each site chooses what, and what the choice has to do with the token's loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crossbreed.core.lab.analytics.measures import (
    bin_width,
    correlations,
    counts,
    mean,
    shares,
)
from crossbreed.core.lab.analytics.observation import Floats, Ints, Seen, SiteTokens
from crossbreed.core.lab.operating_points import realised_shares
from crossbreed.core.model.routing import Site
from crossbreed.core.model.state import without_depth

ENTROPY_BINS = 10


def decisions(seen: Seen, sites: Mapping[str, Site]) -> dict[str, Any]:
    """Rates per site, layer, position and token class, and each site's relation to the loss."""
    totals: dict[str, list[Ints]] = {}
    found = []
    for name, tokens in seen.sites.items():
        site = sites[without_depth(name)]
        counts_N = counts(tokens.choice_M[tokens.asked_M], site.choices)
        totals.setdefault(site.name, []).append(counts_N)
        found.append(
            {
                "site": name,
                "layer": site.name,
                "kind": site.kind,
                "router": site.router,
                "segment": site.segment,
                "choices": choice_names(site),
                "asked": int(counts_N.sum()),
                "shares": list(realised_shares(counts_N.tolist())),
                "positions": _by_position(seen, tokens, site.choices),
                "classes": _by_class(seen, tokens, site.choices),
                "labels": _by_label(seen, tokens),
                "loss": _loss(seen, tokens, site.choices),
                "entropy": None
                if tokens.entropy_M is None
                else _entropy(seen, tokens, tokens.entropy_M, site.choices),
            }
        )
    layers = []
    for layer, each in totals.items():
        counts_N = np.sum(each, axis=0)
        shares_N = list(realised_shares(counts_N.tolist()))
        layers.append({"layer": layer, "depths": len(each), "asked": int(counts_N.sum()), "shares": shares_N})
    return {
        "rows": seen.rows,
        "tokens": len(seen.position_M),
        "scored": int(seen.scored_M.sum()),
        "sites": found,
        "layers": layers,
    }


def choice_names(site: Site) -> list[str]:
    """What the choices of a site are called: its readers, or what a gate and a halt do."""
    return list(site.names) or {"gate": ["skip", "run"], "halt": ["stop", "go on"]}[site.kind]


def _by_position(seen: Seen, tokens: SiteTokens, choices: int) -> dict[str, Any]:
    """Shares in bins of ``width`` successive positions."""
    width = bin_width(int(seen.position_M.max()) + 1)
    bins = int(seen.position_M.max()) // width + 1
    bin_M = seen.position_M[tokens.asked_M] // width
    table = np.bincount(bin_M * choices + tokens.choice_M[tokens.asked_M], minlength=bins * choices)
    rows = table.reshape(bins, choices)
    return {"width": width, "asked": rows.sum(1).tolist(), "shares": [shares(row) for row in rows]}


def _by_class(seen: Seen, tokens: SiteTokens, choices: int) -> list[dict[str, Any]]:
    found = []
    for number, name in enumerate(seen.classes):
        counts_N = counts(tokens.choice_M[tokens.asked_M & (seen.class_M == number)], choices)
        found.append({"class": name, "asked": int(counts_N.sum()), "shares": shares(counts_N)})
    return found


def _by_label(seen: Seen, tokens: SiteTokens) -> list[dict[str, Any]]:
    """How well choices above 0 find the tokens of each label that the task gives: precision, recall, and the precision of chance."""
    asked_M, ran_M = tokens.asked_M, tokens.asked_M & (tokens.choice_M > 0)
    found = []
    for label, names in seen.groups.items():
        labelled_M = np.isin(seen.class_M, [seen.classes.index(name) for name in names])
        hits = (ran_M & labelled_M)[asked_M].astype(np.float64)
        found.append(
            {
                "label": label,
                "classes": list(names),
                "share": mean(labelled_M[asked_M].astype(np.float64)),
                "precision": mean(hits[ran_M[asked_M]]),
                "recall": mean(hits[labelled_M[asked_M]]),
            }
        )
    return found


def _loss(seen: Seen, tokens: SiteTokens, choices: int) -> dict[str, Any]:
    """Over scored tokens that the site was asked about."""
    here_M = tokens.asked_M & seen.scored_M
    loss_M, choice_M = seen.loss_M[here_M], tokens.choice_M[here_M]
    return {
        "tokens": counts(choice_M, choices).tolist(),
        "mean_nats": [mean(loss_M[choice_M == n]) for n in range(choices)],
        "correlations": [{"choice": n, **correlations(choice_M == n, loss_M)} for n in range(1, choices)],
    }


def _entropy(seen: Seen, tokens: SiteTokens, entropy_M: Floats, choices: int) -> dict[str, Any]:
    """How the entropy that the router reads goes with loss (scored tokens) and choice (asked tokens).

    Bins are tenths of the asked tokens by entropy; equal entropies share one, so that there may be fewer.
    """
    asked_M, scored_M = tokens.asked_M, tokens.asked_M & seen.scored_M
    tenths = np.arange(1, ENTROPY_BINS) / ENTROPY_BINS
    edges: Floats = np.quantile(entropy_M[asked_M], tenths) if asked_M.any() else np.empty(0)
    bin_M = np.searchsorted(edges, entropy_M, side="right")
    bins = []
    for n in np.unique(bin_M[asked_M]):
        here_M = asked_M & (bin_M == n)
        counts_N = counts(tokens.choice_M[here_M], choices)
        loss_M = seen.loss_M[here_M & seen.scored_M]
        bins.append(
            {
                "low": float(entropy_M[here_M].min()),
                "high": float(entropy_M[here_M].max()),
                "asked": int(counts_N.sum()),
                "shares": shares(counts_N),
                "scored": len(loss_M),
                "mean_nats": mean(loss_M),
            }
        )
    return {
        "mean": mean(entropy_M[asked_M]),
        "with_loss": correlations(entropy_M[scored_M], seen.loss_M[scored_M]),
        "bins": bins,
    }
