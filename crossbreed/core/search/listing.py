"""Proposals that follow a list instead of a model: the whole grid of a space, or what the study file names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crossbreed.core import genome
from crossbreed.core.errors import ConfigError, nearest
from crossbreed.core.genome import Architecture
from crossbreed.core.search.proposals import Proposal, Proposer
from crossbreed.core.search.study_setting import StudySetting

LISTED = "listed"
"""Origin of a genome from ``search.proposals``: it has no draws, so samplers learn nothing from it."""


@dataclass
class Listing:
    """Proposals in a fixed order. What was proposed before is skipped, so a restarted search goes on where it was.

    ended: why there is nothing more to propose, once that is so.
    """

    sampler: str
    ended: str | None
    _items: Iterator[Proposal]

    @staticmethod
    def of(setting: StudySetting, proposer: Proposer) -> Listing | None:
        """The listing of a study whose sampler enumerates, else None.

        Raises ConfigError for an entry of ``search.proposals`` that cannot be proposed.
        """
        search = setting.file.search
        if search.sampler == "grid":
            return Listing("grid", None, proposer.grid())
        if search.sampler == "list":
            return Listing("list", None, iter(named(setting, proposer)))
        return None

    def next(self, known: set[str]) -> Proposal | None:
        """The next proposal whose ``key`` is not known; None at the end, with ``ended`` set."""
        for proposal in self._items:
            if key(proposal) not in known:
                return proposal
        if self.sampler == "grid":
            self.ended = "The grid is exhausted: every legal draw of the space was proposed."
        else:
            self.ended = "The list is exhausted: every entry of search.proposals was proposed."
        return None


def key(proposal: Proposal) -> str:
    """What tells proposals apart before they are matched: draws, or the genome of one that has none."""
    if proposal.origin == LISTED:
        return genome.digest(proposal.architecture)
    return json.dumps(proposal.draws, sort_keys=True)


def named(setting: StudySetting, proposer: Proposer) -> list[Proposal]:
    """The entries of ``search.proposals``. Raises ConfigError for one that cannot be proposed."""
    entries = setting.file.search.proposals
    if isinstance(entries, str):
        raise ConfigError(f"search.proposals {entries!r} was not read; load the study file from its path.")
    return [_entry(setting, proposer, entry, f"search.proposals[{i}]") for i, entry in enumerate(entries)]


def _entry(setting: StudySetting, proposer: Proposer, entry: dict[str, Any], where: str) -> Proposal:
    if "genome" in entry:
        data = {"vocab": setting.task.vocab, **entry["genome"]}
        architecture = setting.registry.canonical(genome.parse(Architecture, data, f"{where}.genome"))
        return Proposal(architecture, {}, LISTED)
    draws = entry["draws"]
    try:
        proposal = proposer.replay(draws, "sampler")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    for name in draws:
        if name not in proposal.draws:
            raise ConfigError(
                f"{where}: draw {name!r} is not asked for by space {setting.file.space.name!r} after these answers"
                f"{nearest(name, proposal.draws) or '.'}"
            )
    return proposal
