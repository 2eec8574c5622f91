"""From a proposal to a stored candidate: matched to the budget, certified, and never the same architecture twice."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crossbreed.core import genome
from crossbreed.core.budget.certificate import Certificate, excess
from crossbreed.core.budget.matcher import Match, certify, match
from crossbreed.core.errors import CrossbreedError, UnknownName
from crossbreed.core.genome import Architecture
from crossbreed.core.model import legality
from crossbreed.core.search import tuning
from crossbreed.core.search.candidates import OWN, Candidate, Objectives
from crossbreed.core.search.listing import LISTED, Listing, key
from crossbreed.core.search.proposals import Past, Proposal, Proposer
from crossbreed.core.search.rungs import Standing, evidence
from crossbreed.core.search.screening import Screen
from crossbreed.core.search.study_setting import StudySetting
from crossbreed.storage import Repository
from crossbreed.storage.rows import CandidateRow, SeedRow, TrialRow
from crossbreed.storage.runs import Role

PROPOSED = ("start", "sampler")
"""Origins of candidates that came from the space, with draws that a sampler learns from."""


@dataclass(frozen=True)
class Made:
    """A proposal that was matched to the budget (``match``), or why it could not be (``fault``)."""

    proposal: Proposal
    match: Match | None
    fault: Exception | None

    def room(self, screen: Screen) -> float:
        """What a front may gain by it, by its costs; nothing where it is outside the budget."""
        if self.match is None or not self.match.certificate.feasible:
            return -math.inf
        return screen.room({name: self.match.ledger.quantity(name) for name in screen.certain})


@dataclass
class Breeder:
    """Adds candidates to one study: the reference, starting points in order, then a sampler's.

    A proposal whose draws or matched architecture are in the study already is replaced by a fresh one, ``repeats`` times
    at most; then that architecture gets its next seed instead, so that a small space ends in better intervals. Where an
    objective is known before training, several proposals are screened by it and one is kept (see Screen). A sampler that
    enumerates passes over what is there already and proposes nothing after its end.

    exhausted: why there is nothing more to propose, once that is so.
    """

    repository: Repository
    study_id: int
    setting: StudySetting
    violations: dict[int, float] = field(default_factory=dict)
    repeated: int = 0
    exhausted: str | None = None
    _draws: set[str] = field(default_factory=set)
    _starts: list[Proposal] | None = None
    _proposer: Proposer | None = None
    _listing: Listing | None = None
    _buildable: dict[int, bool] = field(default_factory=dict)

    def recall(self, rows: Sequence[CandidateRow]) -> None:
        """Take up a study: what was drawn, how far from the budget it was, how often a proposal was a repeat."""
        for row in rows:
            if row.origin in PROPOSED:
                self._draws.add(_key(row.draws))
            elif row.origin == LISTED:
                self._draws.add(row.hash)
            best = tuning.chosen(row.seeds, self.setting.task.score.direction)
            certificates = [
                p.certificate
                for s in row.seeds
                if s.state == "off_budget" and (s.role == "report" or s is best)
                for p in s.points.values()
            ]
            if row.state == "infeasible":
                certificates.append(row.certificate)
            distances = [violation(Certificate.model_validate(c)) for c in certificates if c]
            if distances:
                self.violations[row.number] = max(distances)
        events = self.repository.events(self.study_id, limit=1_000_000)
        self.repeated = sum(event.kind == "repeat" for event in events)
        self._listing = Listing.of(self.setting, self.proposer)

    @property
    def proposer(self) -> Proposer:
        if self._proposer is None:
            search = self.setting.file.search
            self._proposer = Proposer(
                self.setting.space,
                self.setting.setting,
                list(self.setting.file.objectives.values()),
                search.sampler,
                search.seed,
                search.population,
            )
        return self._proposer

    def add_reference(self) -> TrialRow | None:
        """Store the reference as the first candidate; it is certified as it is, never matched."""
        reference = self.setting.reference
        if reference is None:
            return None
        return self._add_given(reference, "reference")

    def add_named(self, architecture: Architecture) -> TrialRow:
        """Store a given genome as it is, certified and not moved; the one that is there already is returned."""
        architecture = self.setting.registry.canonical(architecture)
        known = self.repository.find_trial(self.study_id, genome.digest(architecture))
        if known is not None:
            return known
        return self._add_given(architecture, "named")

    def _add_given(self, architecture: Architecture, origin: str) -> TrialRow:
        certificate = certify(architecture, self.setting.budget, self.setting.cost_model)
        ledger = self.setting.cost_model.estimate(architecture, self.setting.budget.shape.as_shape())
        return self._store(architecture, origin, {}, Match(architecture, certificate, ledger))

    def add_next(
        self,
        rows: Sequence[CandidateRow],
        candidates: Sequence[Candidate],
        objectives: Objectives,
        standings: Sequence[Standing] = (),
    ) -> None:
        """Store one more candidate (trained or not), or one more seed of an architecture proposed again."""
        start = self._next_start()
        if start is not None:
            self._take(start)
            return
        if self._listing is not None:
            self._add_listed(self._listing)
            return
        screen = _screen(candidates, objectives, standings, self.setting.hypervolume_reference(objectives))
        drawn, twin = self._drawn(rows, self.history(candidates, objectives, standings), screen)
        if drawn:
            self._keep(drawn[0] if len(drawn) == 1 else max(drawn, key=lambda made: made.room(screen)))
        else:
            self._repeat(None if twin is None else next(c for c in candidates if c.row.trial_id == twin.id))

    def _drawn(
        self, rows: Sequence[CandidateRow], history: Sequence[Past], screen: Screen
    ) -> tuple[list[Made], TrialRow | None]:
        """Fresh proposals to compare, and a candidate that was proposed again on the way."""
        search = self.setting.file.search
        # Every second candidate is the sampler's alone, so that a costly one has its turn however little room it leaves.
        wanted = search.screen if screen.certain and len(history) % 2 else 1
        found: list[Made] = []
        twin: TrialRow | None = None
        for attempt in range(search.repeats + wanted - 1):
            # Every second one is drawn at random: else a sampler that is sure of itself is compared with its own copies.
            by = "random" if wanted > 1 and attempt % 2 else search.sampler
            proposal = self.proposer.ask(history, self.repeated * search.repeats + attempt, by)
            if _key(proposal.draws) in self._draws:
                twin = twin or self._trial_of(rows, proposal.draws)
                continue
            if any(proposal.draws == other.proposal.draws for other in found):
                continue
            made = self._made(proposal)
            known = self._known(made)
            if known is not None:
                self._draws.add(_key(proposal.draws))
                twin = known
                continue
            found.append(made)
            if made.fault is not None:
                # A broken part is the user's to know of, whatever else was drawn.
                return [made], twin
            if len(found) == wanted:
                break
        return found, twin

    def _next_start(self) -> Proposal | None:
        if self._starts is None:
            listed = self.setting.file.search.sampler == "list"
            self._starts = [] if listed else self.proposer.starting_points()
        while self._starts:
            start = self._starts.pop(0)
            if _key(start.draws) not in self._draws:
                return start
        return None

    def _add_listed(self, listing: Listing) -> None:
        """Store the next entry that is a new architecture, or note that there is none left."""
        while (proposal := listing.next(self._draws)) is not None:
            self._draws.add(key(proposal))
            if proposal.origin != LISTED:
                if self._take(proposal) is None:
                    return
            elif self.repository.find_trial(self.study_id, genome.digest(proposal.architecture)) is None:
                self._add_given(proposal.architecture, LISTED)
                return
        self.exhausted = listing.ended

    def history(
        self, candidates: Sequence[Candidate], objectives: Objectives, standings: Sequence[Standing] = ()
    ) -> list[Past]:
        """The study as a sampler sees it, every candidate at its own decisions: whole runs, or one rung's results until enough runs are whole."""
        file = self.setting.file
        done = sum(c.eligible for c in candidates if c.row.origin in PROPOSED and c.point == OWN)
        rungs = len(file.train.rung_tokens())
        early = evidence(standings, done, file.search.population, rungs)
        return [
            _past(c, objectives, self.violations.get(c.row.number, 0.0), early)
            for c in candidates
            if c.row.origin in PROPOSED and c.point == OWN
        ]

    def _take(self, proposal: Proposal) -> TrialRow | None:
        """Match and store a proposal; the trial that is the same architecture, if there is one, is returned instead."""
        made = self._made(proposal)
        known = self._known(made)
        if known is None:
            self._keep(made)
        else:
            self._draws.add(_key(proposal.draws))
        return known

    def _made(self, proposal: Proposal) -> Made:
        setting = self.setting
        try:
            architecture = setting.registry.canonical(proposal.architecture)
            legality.check(architecture, setting.registry)
            return Made(
                proposal, match(architecture, setting.budget, setting.registry, setting.cost_model), None
            )
        # A plugin's config or cost() may raise anything; the candidate becomes a record and the search goes on.
        except Exception as error:
            return Made(proposal, None, error)

    def _known(self, made: Made) -> TrialRow | None:
        if made.match is None:
            return None
        return self.repository.find_trial(self.study_id, genome.digest(made.match.architecture))

    def _keep(self, made: Made) -> None:
        proposal = made.proposal
        self._draws.add(_key(proposal.draws))
        if made.match is not None:
            self._store(made.match.architecture, proposal.origin, proposal.draws, made.match)
        else:
            assert made.fault is not None
            self._store_broken(proposal, made.fault)

    def _store(
        self, architecture: Architecture, origin: str, draws: dict[str, Any], matched: Match
    ) -> TrialRow:
        feasible = matched.certificate.feasible
        with self.repository.batch():
            trial = self.repository.add_trial(
                self.study_id,
                hash=genome.digest(architecture),
                genome=architecture.model_dump(mode="json"),
                family=self._family(architecture),
                origin=origin,
                draws=draws,
                certificate=matched.certificate,
                ledger=matched.ledger.as_dict(),
                state="queued" if feasible else "infeasible",
                cause=None if feasible else matched.certificate.reason,
            )
            for seed, lr in enumerate(self.setting.file.train.settings if feasible else ()):
                self._add_run(trial.id, architecture, seed, lr, "tune")
        if not feasible:
            self.violations[trial.number] = violation(matched.certificate)
        return trial

    def _store_broken(self, proposal: Proposal, error: Exception) -> None:
        expected = isinstance(error, CrossbreedError)
        cause = str(error) if expected else f"exception: {type(error).__name__}: {error}"
        trial = self.repository.add_trial(
            self.study_id,
            hash=genome.digest(proposal.architecture),
            genome=proposal.architecture.model_dump(mode="json"),
            family=self._family(proposal.architecture),
            origin=proposal.origin,
            draws=proposal.draws,
            state="failed",
            cause=cause,
        )
        payload = {
            "trial": trial.number,
            "cause": cause,
            "traceback": "".join(traceback.format_exception(error)),
        }
        self.repository.add_event(self.study_id, "proposal_failed", payload)

    def add_report(self, row: CandidateRow, chosen: SeedRow, seed: int) -> None:
        """Queue one fresh run of a candidate at the setting of its ``chosen`` tuning run, under today's plugins."""
        trial = self.repository.trial(self.study_id, row.number)
        architecture = genome.parse(Architecture, trial.genome, f"trial {trial.number}")
        lr = self.setting.file.train.settings[chosen.seed]
        self._add_run(trial.id, architecture, seed, lr, "report")

    def can_build(self, row: CandidateRow) -> bool:
        """Whether every plugin of a candidate is registered; a removed one leaves its results and gets no more runs."""
        if row.trial_id not in self._buildable:
            data = self.repository.trial(self.study_id, row.number).genome
            architecture = genome.parse(Architecture, data, f"trial {row.number}")
            try:
                self.setting.identities(architecture)
            except UnknownName as error:
                self._buildable[row.trial_id] = False
                payload = {"trial": row.number, "cause": str(error)}
                self.repository.add_event(self.study_id, "plugin_removed", payload)
            else:
                self._buildable[row.trial_id] = True
        return self._buildable[row.trial_id]

    def _add_run(self, trial_id: int, architecture: Architecture, seed: int, lr: float, role: Role) -> None:
        self.repository.add_run(
            trial_id,
            seed,
            recipe=self.setting.file.train.at(lr),
            identities=self.setting.identities(architecture),
            role=role,
        )

    def _trial_of(self, rows: Sequence[CandidateRow], draws: dict[str, Any]) -> TrialRow | None:
        for row in rows:
            if _key(row.draws) == _key(draws):
                return self.repository.trial(self.study_id, row.number)
        return None

    def _repeat(self, twin: Candidate | None) -> None:
        """Every fresh proposal was one of ours already: sharpen the last one's mean, once its setting is known."""
        self.repeated += 1
        seed = None
        settings = len(self.setting.file.train.settings)
        if twin is not None and twin.row.seeds and self.can_build(twin.row):
            # With one setting there is nothing to wait for; with several, the best is known once all have run.
            chosen = twin.chosen if settings > 1 else tuning.tuning(twin.row.seeds)[0]
            if chosen is not None:
                seed = max(settings, 1 + max(s.seed for s in twin.row.seeds))
                self.add_report(twin.row, chosen, seed)
        payload = {"trial": None if twin is None else twin.row.number, "seed": seed}
        self.repository.add_event(self.study_id, "repeat", payload)

    def _family(self, architecture: Architecture) -> str:
        try:
            return self.setting.space.family(architecture)
        # A family is a label of plots; a space that cannot name one must not cost the candidate.
        except Exception as error:
            return f"(unnamed: {type(error).__name__})"


def _screen(
    candidates: Sequence[Candidate],
    objectives: Objectives,
    standings: Sequence[Standing],
    reference: Mapping[str, float],
) -> Screen:
    """What the study knows for screening: its front, and all that anybody has reached, in rungs too."""
    means = [[c.means[name] for name in objectives.names] for c in candidates]
    front = [values for c, values in zip(candidates, means, strict=True) if c.on_front]
    return Screen(objectives.directions, reference, front, [*means, *(s.values for s in standings)])


def violation(certificate: Certificate) -> float:
    """How far outside its budget a candidate is: the excesses over all tolerances, added; 0 inside."""
    if certificate.feasible:
        return 0.0
    outside = math.fsum(max(0.0, excess(residual)) for residual in certificate.quantities)
    return min(max(outside, 1e-9), 1e6)


def _past(
    candidate: Candidate,
    objectives: Objectives,
    distance: float,
    early: Mapping[int, tuple[float, ...]] | None,
) -> Past:
    """A candidate as a sampler sees it; ``early`` has the values of one rung, by trial, in place of those of whole runs."""
    draws = candidate.row.draws
    if distance > 0:
        return Past(draws, violation=distance)
    if early is not None:
        return Past(draws, early.get(candidate.row.trial_id))
    if candidate.eligible:
        values = tuple(candidate.means[name] for name in objectives.names)
        return Past(draws, values)
    waiting = any(s.state in ("queued", "leased", "running", "preempted") for s in candidate.seeds)
    return Past(draws, running=waiting)


def _key(draws: dict[str, Any]) -> str:
    return json.dumps(draws, sort_keys=True)
