"""All findings about a model, by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossbreed.core.lab.analytics.agreement import agreement
from crossbreed.core.lab.analytics.decisions import decisions
from crossbreed.core.lab.analytics.depth_attention import depth_attention
from crossbreed.core.lab.analytics.experts import experts
from crossbreed.core.lab.analytics.observation import observe
from crossbreed.core.lab.analytics.subject import Subject
from crossbreed.core.lab.analytics.switches import switches
from crossbreed.core.lab.analytics.text import text

VERSION = 4
"""Of the findings' form; a change of meaning or of names raises it."""


@dataclass(frozen=True)
class Findings:
    """``kinds``: ``decisions``, ``text``, ``agreement``, ``switches``, ``experts`` and ``depth_attention`` with their
    numbers, those that the model has.

    ``rows``: evaluation rows looked at; a kind says for itself where it took fewer.
    """

    rows: int
    kinds: dict[str, dict[str, Any]]


def analyse(subject: Subject, *, switch_at: int | None = None) -> Findings:
    """Everything that applies to a model; no kind where nothing is routed.

    ``switch_at``: the position at which mode switches are looked at; half the task's length when None. Raises ConfigError
    for a position that is not inside the text.
    """
    seen = observe(subject)
    found = {}
    if seen.sites:
        found["decisions"] = decisions(seen, subject.model.sites())
        found["text"] = text(seen, subject.model.sites(), subject.task)
        found["agreement"] = agreement(subject)
    found["switches"] = switches(subject, switch_at)
    found["experts"] = experts(seen, subject.model)
    found["depth_attention"] = depth_attention(seen)
    return Findings(seen.rows, {kind: numbers for kind, numbers in found.items() if numbers})
