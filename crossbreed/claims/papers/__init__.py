"""Papers by name, with their claims."""

from __future__ import annotations

from crossbreed.claims.claim import Paper
from crossbreed.claims.papers.amor import AMOR
from crossbreed.claims.papers.cross import CROSS
from crossbreed.claims.papers.dreamer import DREAMER
from crossbreed.claims.papers.oryx import ORYX
from crossbreed.core.errors import UnknownName

PAPERS = {paper.name: paper for paper in (AMOR, ORYX, DREAMER, CROSS)}


def paper(name: str) -> Paper:
    """One paper; raises UnknownName with the nearest name."""
    if name not in PAPERS:
        raise UnknownName("paper", name, PAPERS)
    return PAPERS[name]
