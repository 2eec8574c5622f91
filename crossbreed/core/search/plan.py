"""What a search would do, without doing it: families, certificates, time and disk."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from crossbreed.core import genome
from crossbreed.core.budget.certificate import Certificate
from crossbreed.core.budget.matcher import certify, match
from crossbreed.core.errors import CrossbreedError
from crossbreed.core.genome import Architecture
from crossbreed.core.lab.checkpoint import Header
from crossbreed.core.lab.train import Trainer
from crossbreed.core.ledger import Ledger
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.search.listing import LISTED, named
from crossbreed.core.search.proposals import Proposal, Proposer
from crossbreed.core.search.study_setting import StudySetting

TIMED_STEPS = 3
CHECKPOINT_BYTES_PER_WEIGHT = 12
"""Weights and the two moments of AdamW, in float32."""


_NO_OWNER = Header(architecture="", recipe={}, task={}, seed=0, step=0, tokens=0, rung=0)
"""The header of a checkpoint that is never written."""


@dataclass(frozen=True)
class PlanRow:
    """One candidate the search will start with. ``reason`` says why it will not be trained, if it will not."""

    family: str
    origin: str
    hash: str
    certificate: Certificate | None
    ledger: Ledger | None
    reason: str | None


@dataclass(frozen=True)
class Plan:
    """``runs``, ``seconds`` and ``disk_bytes`` are (least, most): all settings of every candidate with fresh seeds for the
    reference alone, and for all of them. Seconds come from a few timed steps of the reference on this machine.
    """

    rows: tuple[PlanRow, ...]
    left_out: tuple[str, ...]
    workers: int
    seconds_per_run: float
    runs: tuple[int, int]
    seconds: tuple[float, float]
    disk_bytes: tuple[int, int]

    @property
    def families(self) -> list[str]:
        """Feasible families in order of appearance."""
        return list(dict.fromkeys(row.family for row in self.rows if row.reason is None))


def plan(setting: StudySetting, workers: int = 1) -> Plan:
    """Match the reference and what is proposed first; nothing is trained or stored."""
    reference = setting.reference
    rows = [] if reference is None else [_given(setting, reference, "reference")]
    rows += [_proposed(setting, proposal) for proposal in _first(setting)]
    search, train = setting.file.search, setting.file.train
    trained = [row for row in rows if row.reason is None and row.ledger is not None]
    share = len(trained) / len(rows) if rows else 0.0
    candidates = round(search.trial_limit() * share)
    settings = len(train.settings)
    given = settings + search.seeds if setting.reference is not None else 0
    runs = (candidates * settings + given, candidates * (settings + search.seeds) + given)
    seconds = _seconds_per_run(setting)
    weights = max((row.ledger.parameters for row in trained if row.ledger is not None), default=0)
    per_run = len(train.rung_tokens()) * weights * CHECKPOINT_BYTES_PER_WEIGHT
    return Plan(
        tuple(rows),
        setting.left_out,
        workers,
        seconds,
        runs,
        (runs[0] * seconds / workers, runs[1] * seconds / workers),
        (runs[0] * per_run, runs[1] * per_run),
    )


def _first(setting: StudySetting) -> list[Proposal]:
    """What is proposed before a sampler is asked: the entries of a list, else the space's starting points."""
    proposer = Proposer(setting.space, setting.setting, list(setting.file.objectives.values()))
    if setting.file.search.sampler == "list":
        return named(setting, proposer)
    return proposer.starting_points()


def _given(setting: StudySetting, architecture: Architecture, origin: str) -> PlanRow:
    """A genome that is taken as it is."""
    certificate = certify(architecture, setting.budget, setting.cost_model)
    ledger = setting.cost_model.estimate(architecture, setting.budget.shape.as_shape())
    family = setting.space.family(architecture)
    return PlanRow(family, origin, genome.digest(architecture), certificate, ledger, certificate.reason)


def _proposed(setting: StudySetting, proposal: Proposal) -> PlanRow:
    architecture = proposal.architecture
    if proposal.origin == LISTED:
        return _given(setting, architecture, LISTED)
    family, certificate, ledger, reason = setting.space.family(architecture), None, None, None
    try:
        architecture = setting.registry.canonical(architecture)
        found = match(architecture, setting.budget, setting.registry, setting.cost_model)
    except CrossbreedError as error:
        reason = str(error)
    else:
        architecture, certificate, ledger = found.architecture, found.certificate, found.ledger
        reason = certificate.reason
    return PlanRow(family, proposal.origin, genome.digest(architecture), certificate, ledger, reason)


def _seconds_per_run(setting: StudySetting) -> float:
    """Training time of the reference on this machine's CPU, from a few steps of a model that is thrown away."""
    architecture = setting.reference
    if architecture is None:
        # The first proposal stands for the others: they match one budget.
        architecture = setting.registry.canonical(_first(setting)[0].architecture)
    train, task = setting.file.train, setting.task
    step = train.batch * task.length
    trainer = Trainer(
        LanguageModel(architecture, setting.registry),
        task,
        train.at(train.settings[0]),
        _NO_OWNER,
        lambda record: None,
    )
    threads = torch.get_num_threads()
    # As many as a worker will use: more of them than free cores make small steps many times slower.
    torch.set_num_threads(setting.file.search.threads)
    try:
        trainer.advance(step, lambda: False)
        begun = time.perf_counter()
        trainer.advance((1 + TIMED_STEPS) * step, lambda: False)
        return (time.perf_counter() - begun) / TIMED_STEPS * trainer.total_steps
    finally:
        torch.set_num_threads(threads)
