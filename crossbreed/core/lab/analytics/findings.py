"""All findings about a model, by kind."""

from __future__ import annotations

from typing import Any

from crossbreed.core.lab.analytics.agreement import agreement
from crossbreed.core.lab.analytics.decisions import decisions
from crossbreed.core.lab.analytics.experts import experts
from crossbreed.core.lab.analytics.observation import observe
from crossbreed.core.lab.analytics.subject import Subject
from crossbreed.core.lab.analytics.switches import switches

VERSION = 1
"""Of the findings' form; a change of meaning or of names raises it."""

Findings = dict[str, dict[str, Any]]
"""Kind -> its numbers: ``decisions``, ``agreement``, ``switches``, ``experts``; only what the model has."""


def analyse(subject: Subject, *, switch_at: int | None = None) -> Findings:
    """Everything that applies to a model; {} where nothing is routed.

    ``switch_at``: the position at which mode switches are looked at; half the task's length when None. Raises ConfigError
    for a position that is not inside the text.
    """
    seen = observe(subject)
    found: Findings = {}
    if seen.sites:
        found["decisions"] = decisions(seen, subject.model.sites())
        found["agreement"] = agreement(subject)
    found["switches"] = switches(subject, switch_at)
    found["experts"] = experts(seen, subject.model)
    return {kind: numbers for kind, numbers in found.items() if numbers}
