"""Trials: the candidates of a study, numbered from 0, and the architectures they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from crossbreed.core.errors import ConfigError, StorageError, UnknownName
from crossbreed.storage import plain, schema
from crossbreed.storage.database import Database
from crossbreed.storage.rows import ArchitectureRow, Data, TrialRow
from crossbreed.storage.states import check_state
from crossbreed.storage.studies import locked_study, now
from crossbreed.storage.upsert import insert_missing

MANY = 10_000
"""Numbers that a statement can name; of more, all trials are read."""
SHORTEST_PREFIX = 4
"""Hex digits that a hash prefix needs at least."""


class Trials:
    """The part of the repository about trials and architectures."""

    database: Database

    def add_trial(
        self,
        study_id: int,
        *,
        hash: str,
        genome: Mapping[str, Any],
        family: str,
        origin: str,
        draws: Mapping[str, Any] | None = None,
        certificate: Any = None,
        ledger: Any = None,
        state: str = "queued",
        cause: str | None = None,
    ) -> TrialRow:
        """Add a candidate under the study's next number. ``genome`` is canonical and ``hash`` is its digest.

        ``certificate`` and ``ledger`` are dataclasses, pydantic models or plain data, nominal.
        """
        check_state(state)
        with self.database.writing() as session:
            locked_study(session, study_id)
            architecture = _stored(session, hash, genome)
            last = session.scalar(
                select(func.max(schema.Trial.number)).where(schema.Trial.study_id == study_id)
            )
            trial = schema.Trial(
                study_id=study_id,
                number=0 if last is None else last + 1,
                architecture_id=architecture.id,
                family=family,
                origin=origin,
                draws=plain.plain(draws or {}),
                state=state,
                cause=cause or None,
                certificate=plain.plain(certificate),
                ledger=plain.plain(ledger),
                created_at=now(),
            )
            session.add(trial)
            session.flush()
            return _trial(trial, architecture)

    def trials(self, study_id: int, states: Sequence[str] | None = None) -> list[TrialRow]:
        """All trials of a study in order of number, or those in ``states``."""
        query = _query().where(schema.Trial.study_id == study_id).order_by(schema.Trial.number)
        if states is not None:
            query = query.where(schema.Trial.state.in_(states))
        with self.database.reading() as session:
            return [_trial(trial, architecture) for trial, architecture in session.execute(query)]

    def genomes(self, study_id: int, numbers: Sequence[int]) -> dict[int, Data]:
        """Number -> genome of some trials of a study."""
        query = select(schema.Trial.number, schema.Architecture.genome).join_from(
            schema.Trial, schema.Architecture
        )
        query = query.where(schema.Trial.study_id == study_id)
        if len(numbers) < MANY:
            query = query.where(schema.Trial.number.in_(numbers))
        wanted = frozenset(numbers)
        with self.database.reading() as session:
            return {number: genome for number, genome in session.execute(query) if number in wanted}

    def trial(self, study_id: int, number: int) -> TrialRow:
        """The trial of that number. Raises StorageError when there is none."""
        query = _query().where(schema.Trial.study_id == study_id, schema.Trial.number == number)
        with self.database.reading() as session:
            found = session.execute(query).one_or_none()
            if found is None:
                raise StorageError(missing_trial(session, study_id, number))
            return _trial(*found)

    def find_trial(self, study_id: int, hash: str) -> TrialRow | None:
        """The study's first trial of an architecture, by its full hash."""
        query = _query().where(schema.Trial.study_id == study_id, schema.Architecture.hash == hash)
        with self.database.reading() as session:
            found = session.execute(query.order_by(schema.Trial.number).limit(1)).one_or_none()
            return None if found is None else _trial(*found)

    def set_trial_state(self, trial_id: int, state: str, cause: str | None = None) -> None:
        """Set the state of a trial that has no runs (a trial with runs follows its first one).

        Raises StorageError when it has any.
        """
        check_state(state)
        with self.database.writing() as session:
            trial = session.get(schema.Trial, trial_id, with_for_update=True)
            if trial is None:
                raise StorageError(f"there is no trial with id {trial_id}.")
            if session.scalar(select(func.count()).where(schema.Run.trial_id == trial_id)):
                raise StorageError(
                    f"trial {trial.number} has runs, and its state follows them; set theirs instead."
                )
            trial.state, trial.cause = state, cause or None
            trial.revision += 1

    def add_architecture(self, hash: str, genome: Mapping[str, Any]) -> None:
        """Keep a canonical genome that is no candidate of a study, so that its hash can be named."""
        with self.database.writing() as session:
            _stored(session, hash, genome)

    def architecture(self, prefix: str) -> ArchitectureRow:
        """The architecture whose hash starts with ``prefix``.

        Raises ConfigError for a prefix that is too short, not hexadecimal or ambiguous, UnknownName for an unknown one.
        """
        prefix = prefix.lower()
        if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST_PREFIX},64}}", prefix):
            raise ConfigError(
                f"hash prefix {prefix!r} breaks the rule: {SHORTEST_PREFIX} to 64 hexadecimal digits."
            )
        table = schema.Architecture
        with self.database.reading() as session:
            found = session.scalars(select(table).where(table.hash.startswith(prefix)).limit(2)).all()
            if not found:
                known = session.scalars(
                    select(func.substr(table.hash, 1, 12)).order_by(table.id.desc()).limit(5)
                )
                raise UnknownName("architecture", prefix, known.all())
            if len(found) > 1:
                raise ConfigError(f"hash prefix {prefix!r} fits several architectures; give more digits.")
            return ArchitectureRow(found[0].hash, found[0].genome)


def missing_trial(session: Session, study_id: int, number: int) -> str:
    """That a study has no trial of a number, and which it has."""
    name = session.scalar(select(schema.Study.name).where(schema.Study.id == study_id))
    last = session.scalar(select(func.max(schema.Trial.number)).where(schema.Trial.study_id == study_id))
    has = "it has none" if last is None else f"they are numbered from 0 to {last}"
    return f"study {name!r} has no candidate {number}; {has}."


def _stored(session: Session, hash: str, genome: Mapping[str, Any]) -> schema.Architecture:
    """The row of an architecture, made when missing."""
    insert_missing(session, schema.Architecture, {"hash": hash, "genome": plain.plain(genome)}, ["hash"])
    return session.scalars(select(schema.Architecture).where(schema.Architecture.hash == hash)).one()


@cache
def _query() -> Select[schema.Trial, schema.Architecture]:
    # The state of a trial with runs is not set through the session's own object, so that this is read anew.
    query = select(schema.Trial, schema.Architecture).execution_options(populate_existing=True)
    return query.join(schema.Architecture)


def _trial(trial: schema.Trial, architecture: schema.Architecture) -> TrialRow:
    return TrialRow(
        id=trial.id,
        study_id=trial.study_id,
        number=trial.number,
        hash=architecture.hash,
        genome=architecture.genome,
        family=trial.family,
        origin=trial.origin,
        draws=trial.draws,
        state=trial.state,
        cause=trial.cause,
        certificate=trial.certificate,
        ledger=trial.ledger,
        created_at=trial.created_at,
    )
