"""What the pages read: one engine for the process, one session per rerun, and results kept until they change.

A page that follows a running search asks for the study's stamp, a cheap value that moves whenever anything is recorded, and
only then for more: of candidates, those that changed; of anything else, what is kept under the stamp or under the revision of
the one candidate that it is about. Whatever is kept is locked while it is read: any number of tabs opened at once on a cold
cache read once.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import streamlit as st

from crossbreed.core.errors import StorageError
from crossbreed.core.host import Host, Registry
from crossbreed.core.search import candidates, genes
from crossbreed.core.search.candidates import OWN, Objectives, SpeedKey
from crossbreed.core.search.genes import Genes
from crossbreed.core.search.growth import Growth
from crossbreed.core.search.study_file import SPEEDS, TASK_DATA, StudyFile
from crossbreed.dashboard.follower import Follower
from crossbreed.dashboard.follower import Results as Results
from crossbreed.dashboard.launch import DEFAULT_URL, URL_VARIABLE
from crossbreed.storage import Repository, redacted
from crossbreed.storage.locations import parse_url
from crossbreed.storage.rows import (
    Analysed,
    AnalyticsRow,
    BreakdownRow,
    CurveRow,
    EventRow,
    Failure,
    PluginText,
    Revision,
    RunRow,
    Stamp,
    StudyRow,
    TrialDetail,
)
from crossbreed.storage.states import ENDED

CURVE_POINTS = 300
"""Points of one learning curve sent to the browser; longer ones are thinned in SQL."""

FRESH_S = 1.0
"""Seconds for which a study that has changed may be shown as it was."""

LATEST_RUNS, LATEST_EVENTS = 100, 40
"""Of which the page about a study's health speaks."""

Standing = Literal["running", "complete", "idle"]


@dataclass(frozen=True)
class Detail:
    """One candidate in full, with its curves by run id, where its losses come from, and the plugin files its study used."""

    trial: TrialDetail
    curves: dict[int, list[CurveRow]]
    breakdowns: tuple[BreakdownRow, ...]
    plugins: tuple[PluginText, ...]


@dataclass(frozen=True)
class Health:
    """How a study fares: runs that are held, bad ends by cause, the latest runs and events, and its plugin files."""

    at_work: tuple[RunRow, ...]
    failures: tuple[Failure, ...]
    latest: tuple[RunRow, ...]
    events: tuple[EventRow, ...]
    plugins: tuple[PluginText, ...]


@dataclass(frozen=True)
class Progress:
    """How far a study is. ``proposed`` counts candidates that were drawn, ``limit`` is how many will be."""

    standing: Standing
    trials: dict[str, int]
    runs: dict[str, int]
    proposed: int
    limit: int
    changed_at: datetime | None
    driver: str | None


def database_url() -> str:
    return os.environ.get(URL_VARIABLE, DEFAULT_URL)


def database_shown() -> str:
    """The database's URL as given, without its password."""
    return redacted(database_url())


def repository() -> Repository:
    """The one read-only repository of this process. Raises StorageError while the database is not there."""
    return _repository(_identity())


def _identity() -> tuple[int, int] | None:
    """Which file is behind the URL now: a database that was replaced is opened anew. None for a server.

    A file that is open keeps its inode number, so two files are never taken for one.
    """
    url = parse_url(database_url())
    if url.get_backend_name() != "sqlite":
        return None
    file = str(url.database)
    try:
        found = os.stat(file)
    except OSError as error:
        raise StorageError(f"database {file!r} is not there: {error.strerror}.") from error
    return found.st_dev, found.st_ino


@st.cache_resource(max_entries=1, show_spinner=False, on_release=lambda opened: opened.close())
def _repository(identity: tuple[int, int] | None) -> Repository:
    return Repository.open(database_url(), read_only=True)


@st.cache_resource(show_spinner=False)
def registry() -> Registry:
    """What is registered here: tells along which axis a stored mixer works. Plugin files of a study are not run."""
    return Host.load()


def studies() -> list[StudyRow]:
    """All studies, oldest first."""
    return repository().list_studies()


def stamp(study: StudyRow) -> Stamp:
    """The study's stamp, FRESH_S old at most: tabs that ask one after the other share what is read at it."""
    return _stamp(_identity(), study.id)


@st.cache_resource(ttl=FRESH_S, max_entries=64, show_spinner=False)
def _stamp(identity: tuple[int, int] | None, study_id: int) -> Stamp:
    return repository().stamp(study_id)


def pulse(name: str | None = None) -> tuple[Hashable, ...]:
    """A cheap value that moves with anything the pages show of one study, or of all of them."""
    return tuple(
        (s.id, s.name, stamp(s), _driver(s)) if name in (None, s.name) else s.name for s in studies()
    )


def shown(name: str, numbers: Iterable[int] = ()) -> tuple[Hashable, ...]:
    """A value that moves with what the pages show of all candidates of one study, and with the curves of those of ``numbers``;
    other curves that grow leave it as it is."""
    for study in studies():
        if study.name == name:
            at, follower = stamp(study), _follower(study)
            curves = tuple(follower.revision(number, at) for number in numbers)
            return study.id, follower.results(at).version, curves, _driver(study)
    return ()


def results(study: StudyRow, at: Stamp) -> Results:
    """Every candidate of a study as it was at a stamp, or later."""
    return _follower(study).results(at)


def _follower(study: StudyRow) -> Follower:
    objectives = Objectives.of(StudyFile.read(study.spec, f"study {study.name!r}"))
    return _following(_identity(), study.id, study.created_at, repr(objectives), _objectives=objectives)


@st.cache_resource(max_entries=32, show_spinner=False)
def _following(
    identity: tuple[int, int] | None,
    study_id: int,
    created_at: datetime,
    asked: str,
    _objectives: Objectives,
) -> Follower:
    return Follower(repository(), study_id, _objectives)


def speed_keys(study: StudyRow, at: Stamp) -> dict[str, tuple[SpeedKey, ...]]:
    """Speed -> the keys under which a study has measured it up to a stamp: the smallest batch first, of one the most
    frequent."""
    return results(study, at).kept("speed keys", lambda: _speed_keys(study.id))


def _speed_keys(study_id: int) -> dict[str, tuple[SpeedKey, ...]]:
    counts = {name: repository().speed_keys(study_id, name, OWN, batch=None) for name in SPEEDS}
    return {name: tuple(sorted(c, key=partial(_usual, c))) for name, c in counts.items() if c}


def _usual(counts: Counter[SpeedKey], key: SpeedKey) -> tuple[int, int]:
    """The place of a key among others: objectives are speeds at batch 1."""
    return key[1], -counts[key]


def evaluation_items(study: StudyRow) -> str | None:
    """The hash of the items a study's candidates are judged on, as its first search found them; None where none is stored."""
    found = repository().first_event(study.id, TASK_DATA)
    return None if found is None else str(found.payload["evaluation"])


def measured_under(study: StudyRow, at: Stamp, keys: Mapping[str, SpeedKey]) -> Results:
    """``results`` with the speeds under these keys instead of the study's own."""
    found = results(study, at)
    if all(found.objectives.keys.get(name) == key for name, key in keys.items()):
        return found
    return found.kept(("under", tuple(sorted(keys.items()))), lambda: _under(found, keys))


def _under(found: Results, keys: Mapping[str, SpeedKey]) -> Results:
    objectives = replace(found.objectives, keys={**found.objectives.keys, **keys})
    rows = [candidate.row for candidate in found.own]
    return replace(found, candidates=tuple(candidates.read(rows, objectives)), objectives=objectives)


def detail(study: StudyRow, number: int, at: Stamp) -> Detail:
    """One candidate in full as it was at a stamp. Raises StorageError when there is none of that number."""
    revision = _follower(study).revision(number, at)
    return Detail(*_detail(_identity(), study.id, number, revision), _plugins(_identity(), study.id, at))


@st.cache_resource(max_entries=64, show_spinner=False)
def _detail(
    identity: tuple[int, int] | None, study_id: int, number: int, revision: Revision | None
) -> tuple[TrialDetail, dict[int, list[CurveRow]], tuple[BreakdownRow, ...]]:
    source = repository()
    trial = source.trial_detail(study_id, number)
    curves = source.curves([r.run.id for r in trial.runs], at_most=CURVE_POINTS)
    return trial, curves, tuple(source.breakdowns(study_id, number))


@st.cache_resource(max_entries=16, show_spinner=False)
def _plugins(identity: tuple[int, int] | None, study_id: int, at: Stamp) -> tuple[PluginText, ...]:
    return tuple(repository().plugin_files(study_id))


def analysed(study: StudyRow, at: Stamp) -> list[Analysed]:
    """The runs and operating points at which routers were looked at, as they were at a stamp."""
    return _analysed(_identity(), study.id, at)


@st.cache_resource(max_entries=16, show_spinner=False)
def _analysed(identity: tuple[int, int] | None, study_id: int, at: Stamp) -> list[Analysed]:
    return repository().analysed(study_id)


def analytics(study: StudyRow, where: Analysed, at: Stamp) -> dict[str, AnalyticsRow]:
    """What was found there, by kind."""
    return _analytics(_identity(), where, at)


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs={Analysed: repr})
def _analytics(identity: tuple[int, int] | None, where: Analysed, at: Stamp) -> dict[str, AnalyticsRow]:
    return repository().analytics(where.run_id, where.point)


def health(study: StudyRow, at: Stamp) -> Health:
    """How a study fared at a stamp."""
    return _health(_identity(), study.id, at)


@st.cache_resource(max_entries=8, show_spinner=False)
def _health(identity: tuple[int, int] | None, study_id: int, at: Stamp) -> Health:
    source = repository()
    return Health(
        tuple(source.at_work(study_id)),
        tuple(source.failures(study_id)),
        tuple(source.latest_runs(study_id, LATEST_RUNS)),
        tuple(source.events(study_id, limit=LATEST_EVENTS)),
        tuple(source.plugin_files(study_id)),
    )


def volumes(study: StudyRow, at: Stamp) -> list[Growth]:
    """How the hypervolume of a study's front grew up to a stamp, oldest first."""
    return _follower(study).growth(at)


def effects(study: StudyRow, at: Stamp) -> Genes:
    """Which choices matter in a study as it was at a stamp."""
    found = results(study, at)
    return _effects(_identity(), study.id, study.created_at, found.judged, _found=found)


@st.cache_resource(max_entries=8, show_spinner=False)
def _effects(
    identity: tuple[int, int] | None, study_id: int, created_at: datetime, judged: int, _found: Results
) -> Genes:
    return genes.in_study(repository(), study_id, _found.candidates, _found.objectives)


def progress(study: StudyRow, at: Stamp) -> Progress:
    """Counts as they were at a stamp, and who drives the study now (a driver leaves no stamp)."""
    found = results(study, at)
    limit = StudyFile.read(study.spec, f"study {study.name!r}").search.trial_limit()
    driver = _driver(study)
    standing: Standing = "running" if driver is not None else "idle"
    if standing == "idle" and set(found.runs) <= ENDED and found.proposed + _repeats(study) >= limit:
        standing = "complete"
    return Progress(standing, found.trials, found.runs, found.proposed, limit, at.changed_at, driver)


def _repeats(study: StudyRow) -> int:
    """Proposals that were a candidate already; they count towards the limit and leave an event only."""
    return len(repository().events_of(study.id, "repeat"))


def _driver(study: StudyRow) -> str | None:
    """The process that drives a study now, None when nobody does."""
    held = repository().driver(study.id)
    if held is None or held.driver.certainly_dead() or held.expires_at < datetime.now(UTC):
        return None
    return f"process {held.driver.pid} on {held.driver.host}"
