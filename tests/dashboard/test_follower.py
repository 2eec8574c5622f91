"""What is kept of a study that others write to is what a fresh reading gives, after whatever they wrote."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbreed.core.search.candidates import Objectives, read
from crossbreed.core.search.growth import GROWTH, history
from crossbreed.dashboard.follower import KEPT, Follower
from crossbreed.storage import Repository
from crossbreed.storage.rows import RunRow
from crossbreed.storage.schema import Trial
from tests.storage.material import SECONDS, add_run, add_trial, curve, speed

OBJECTIVES = Objectives(
    {"score": "max", "decode_tokens_per_s": "max", "parameters": "min"}, {}, ("own", "half")
)
GROWN = {"tokens": 1, "seconds": 1.0, "trials": 1, "hypervolume": 1.0, "reference": {}}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("follower") / "study.db"
    with Repository.open(str(path)) as repository:
        repository.create_study("study", {"schema": 1})
    return path


class Writer:
    """A search of sorts: a step does one thing to one run, if that can be done."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.runs: list[tuple[RunRow, str]] = []
        self.steps: dict[str, Callable[[int, float], object]] = {
            "add": self.add,
            "seed": self.seed,
            "judge": self.judge,
            "time": self.time,
            "end": self.end,
            "infeasible": self.infeasible,
            "grow": self.grow,
            "delete": self.delete,
        }

    def _start(self, run: RunRow) -> None:
        lease = self.repository.lease_run(run.id, "worker", seconds=SECONDS)
        if lease is not None:
            self.repository.record_started(run.id, lease, {})
            self.runs.append((run, lease))

    def _one(self, which: int) -> tuple[RunRow, str]:
        if not self.runs:
            self.add(0, 0.0)
        return self.runs[which % len(self.runs)]

    def add(self, which: int, value: float) -> None:
        self._start(add_run(self.repository, name=f"{which % 3}"))

    def seed(self, which: int, value: float) -> None:
        run, _ = self._one(which)
        more = {"recipe": {"lr": 1e-3}, "identities": run.identities, "role": "report"}
        self._start(self.repository.add_run(run.trial_id, which + 1, **more))  # type: ignore[arg-type]

    def judge(self, which: int, value: float) -> None:
        run, lease = self._one(which)
        point = "half" if which % 4 == 3 else "own"
        fields = {"tokens": 8, "metrics": {}, "score": value, "rows": 4}
        self.repository.record_evaluation(run.id, lease, point, **fields)  # type: ignore[arg-type]

    def time(self, which: int, value: float) -> None:
        run, lease = self._one(which)
        device = "gpu" if which % 2 else "cpu"
        self.repository.record_profile(run.id, lease, "own", [speed(1 + value, device=device)])

    def end(self, which: int, value: float) -> None:
        run, lease = self._one(which)
        if self.repository.run(run.id).state == "running":
            self.repository.record_finished(run.id, lease, "off_budget" if which % 5 == 4 else "done")

    def infeasible(self, which: int, value: float) -> None:
        trial = add_trial(self.repository, 1, "x", state="queued")
        self.repository.set_trial_state(trial.id, "infeasible", "a rule")

    def grow(self, which: int, value: float) -> None:
        self.repository.add_event(1, GROWTH, {**GROWN, "hypervolume": value})

    def delete(self, which: int, value: float) -> None:
        run, _ = self._one(which)
        with self.repository.database.writing() as session:
            session.delete(session.get_one(Trial, run.trial_id))
        self.runs = [(r, lease) for r, lease in self.runs if r.trial_id != run.trial_id]


STEPS = tuple(
    Writer.__dict__.keys() & {"add", "seed", "judge", "time", "end", "infeasible", "grow", "delete"}
)


def shows_what_is_stored(follower: Follower) -> None:
    repository, at = follower.repository, follower.repository.stamp(1)
    found = follower.results(at)
    rows = repository.candidates(1, points=OBJECTIVES.points)
    assert list(found.candidates) == read(rows, OBJECTIVES)
    assert found.objectives == OBJECTIVES.over(rows)
    assert [c.row for c in found.own] == rows
    assert found.trials == Counter(row.state for row in rows)
    assert found.runs == Counter(seed.state for row in rows for seed in row.seeds)
    assert follower.growth(at) == history(repository, 1)
    assert follower.results(at) is found


Step = tuple[str, int, float, bool]
SEQUENCES = st.lists(
    st.tuples(
        st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.sampled_from([0.25, 0.5, 0.75]), st.booleans()
    ),
    max_size=25,
)


def follow_along(empty: Path, steps: list[Step]) -> None:
    """Two followers, one that looks after every step and one that looks now and then, over a copy of the study."""
    with tempfile.TemporaryDirectory() as folder, Repository.open(shutil.copy(empty, folder)) as repository:
        writer = Writer(repository)
        often, seldom = Follower(repository, 1, OBJECTIVES), Follower(repository, 1, OBJECTIVES)
        for name, which, value, look in steps:
            writer.steps[name](which, value)
            shows_what_is_stored(often)
            if look:
                shows_what_is_stored(seldom)
        shows_what_is_stored(seldom)


@settings(max_examples=3, deadline=None)
@given(SEQUENCES)
def test_followers_that_look_at_any_time_show_what_a_fresh_reading_shows(
    empty: Path, steps: list[Step]
) -> None:
    follow_along(empty, steps)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(SEQUENCES)
def test_followers_show_what_a_fresh_reading_shows_after_many_more_sequences(
    empty: Path, steps: list[Step]
) -> None:
    follow_along(empty, steps)


def test_what_was_taken_before_a_change_stays_as_it_was(empty: Path, tmp_path: Path) -> None:
    with Repository.open(shutil.copy(empty, tmp_path)) as repository:
        writer = Writer(repository)
        follower = Follower(repository, 1, OBJECTIVES)
        for step in ("add", "judge", "time", "end"):
            writer.steps[step](0, 0.5)
        first = follower.results(repository.stamp(1))
        kept, judged = first.candidates, first.judged
        assert [c.on_front for c in first.front] == [True]
        writer.infeasible(0, 0.0)
        second = follower.results(repository.stamp(1))
        assert (len(second.candidates), second.judged) == (2, judged)
        writer.judge(0, 0.75)
        third = follower.results(repository.stamp(1))
        assert third.judged > judged
        assert first.candidates is kept
        assert first.front[0].means["score"] == 0.5
        assert third.front[0].means["score"] == 0.75
        assert (third.find(0), third.find(1), third.find(2)) == (third.own[0], third.own[1], None)


def test_a_stamp_that_is_behind_by_now_is_looked_for_once(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Repository.open(shutil.copy(empty, tmp_path)) as repository:
        writer, looks = Writer(repository), []
        look = Follower._look
        monkeypatch.setattr(Follower, "_look", lambda self: (looks.append(self), look(self)))
        follower, early = Follower(repository, 1, OBJECTIVES), repository.stamp(1)
        writer.steps["add"](0, 0.5)
        for at in (early, early, repository.stamp(1)):
            assert len(follower.results(at).own) == 1
        assert len(looks) == 1


def test_threads_that_look_while_others_write_all_end_at_what_is_stored(empty: Path, tmp_path: Path) -> None:
    with Repository.open(shutil.copy(empty, tmp_path)) as repository:
        writer = Writer(repository)
        follower = Follower(repository, 1, OBJECTIVES)

        def look(_: int) -> list[int]:
            return [len(follower.results(repository.stamp(1)).own) for _ in range(20)]

        with ThreadPoolExecutor(8) as pool:
            looking = [pool.submit(look, i) for i in range(8)]
            for i in range(10):
                for step in ("add", "judge", "time", "end"):
                    writer.steps[step](i, i / 10)
            for future in looking:
                counts = future.result()
                assert counts == sorted(counts)
        shows_what_is_stored(follower)


def test_of_a_ledger_only_totals_and_routers_are_kept(empty: Path, tmp_path: Path) -> None:
    lines = [{"site": "0.0.0.gate", "name": "learned"}, {"site": "0.0.0", "name": "attention"}]
    with Repository.open(shutil.copy(empty, tmp_path)) as repository:
        add_trial(repository, 1, ledger={"parameters": 7, "parts": lines})
        (found,) = Follower(repository, 1, OBJECTIVES).results(repository.stamp(1)).own
        assert found.row.ledger == {"parameters": 7, "parts": lines[:1]}


def test_what_is_made_of_results_is_made_once_and_what_nobody_asks_for_is_let_go(
    empty: Path, tmp_path: Path
) -> None:
    with Repository.open(shutil.copy(empty, tmp_path)) as repository:
        results = Follower(repository, 1, OBJECTIVES).results(repository.stamp(1))
    made: list[int] = []
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda _: results.kept("a", lambda: made.append(1) or made), range(8)))
    assert made == [1]
    assert all(found is kept[0] for found in kept)
    for i in range(KEPT - 1):
        results.kept(i, lambda: None)
    results.kept("a", lambda: made.append(2))
    results.kept("b", lambda: None)
    results.kept("a", lambda: made.append(3))
    results.kept(0, lambda: made.append(4))
    assert made == [1, 4]


def test_a_curve_that_grows_is_news_of_its_candidate_and_of_nothing_else(empty: Path, tmp_path: Path) -> None:
    with Repository.open(shutil.copy(empty, tmp_path)) as repository:
        writer = Writer(repository)
        writer.add(0, 0.0)
        writer.add(1, 0.0)
        follower = Follower(repository, 1, OBJECTIVES)
        at = repository.stamp(1)
        before, revisions = follower.results(at), [follower.revision(n, at) for n in range(3)]
        run, lease = writer.runs[1]
        assert repository.record_curve(run.id, lease, curve(0, 5))
        later = repository.stamp(1)
        assert later != at
        assert follower.results(later) is before
        after = [follower.revision(n, later) for n in range(3)]
        assert after[0] == revisions[0]
        assert after[1] != revisions[1]
        assert after[2] is None
        repository.record_rung(run.id, lease, rung=0, tokens=64, metrics={})
        assert follower.results(repository.stamp(1)).version == before.version + 1
