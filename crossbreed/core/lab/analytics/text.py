"""The beginning of the text, word by word: what each site chose there, what its router read and what the word cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crossbreed.core.contracts.task import Task
from crossbreed.core.lab.analytics.decisions import choice_names
from crossbreed.core.lab.analytics.observation import Floats, Seen
from crossbreed.core.model.routing import Site
from crossbreed.core.model.state import without_depth

MOST_TOKENS = 256


def text(seen: Seen, sites: Mapping[str, Site], task: Task) -> dict[str, Any]:
    """The first tokens that were looked at, whole rows where a row is shorter than MOST_TOKENS."""
    length = min(seen.length, MOST_TOKENS)
    count = min(len(seen.token_M), MOST_TOKENS // length * length)
    first = slice(0, count)
    found = []
    for name, tokens in seen.sites.items():
        site = sites[without_depth(name)]
        found.append(
            {
                "site": name,
                "choices": choice_names(site),
                "choice": tokens.choice_M[first].tolist(),
                "asked": tokens.asked_M[first].tolist(),
                "entropy": None if tokens.entropy_M is None else tokens.entropy_M[first].tolist(),
            }
        )
    return {
        "length": length,
        "words": task.words(seen.token_M[first].tolist()),
        "classes": list(seen.classes),
        "class": seen.class_M[first].tolist(),
        "loss_nats": _known(seen.loss_M[first]),
        "sites": found,
    }


def _known(x_M: Floats) -> list[float | None]:
    """Null where there is no value."""
    return [None if np.isnan(x) else float(x) for x in x_M]
