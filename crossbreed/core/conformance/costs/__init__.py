"""Rules of cost models. Importing this registers them, in the order in which they are judged."""

from __future__ import annotations

from crossbreed.core.conformance.costs import agreement, laws, predictions, statement  # noqa: F401
from crossbreed.core.conformance.costs.subject import CostSubject

SUBJECT = CostSubject
