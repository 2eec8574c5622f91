"""A study of any size, made in seconds inside SQLite: copies of one stored candidate, each with a run, a curve, a score and speeds
of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect
from sqlalchemy import text
from sqlalchemy.orm import Session

from crossbreed.storage import Repository
from crossbreed.storage.schema import Base
from tests.dashboard.material import STUDY, store

FAMILIES = 12
_SCORE = "((i * 7919) % 10007) / 10007.0"
_SPEED = "(200 + ((i * 104729) % 10009) / 5.0)"
_FACTOR = "CASE phase WHEN 'decode' THEN 1.0 ELSE 9.0 END"


def large_study(path: Path, trials: int, points: int) -> None:
    """The study of ``material`` with as many more candidates as make up ``trials``, each with a done run whose curve has so many
    points."""
    store(path)
    with Repository.open(str(path)) as repository:
        study = repository.open_study(STUDY)
        repository.set_spec(study.id, {**study.spec, "search": {**study.spec["search"], "trials": trials}})
        few = repository.stamp(study.id).trials
        with repository.database.writing() as session:
            _multiply(session, trials - few, points)


def _multiply(session: Session, count: int, points: int) -> None:
    trial = session.execute(text("SELECT id FROM trial WHERE number = 0")).scalar_one()
    run = session.execute(text(f"SELECT id FROM run WHERE trial_id = {trial} AND seed = 0")).scalar_one()
    point = session.execute(
        text(f"SELECT id FROM operating_point WHERE run_id = {run} AND name = 'own'")
    ).scalar_one()
    first = {
        name: session.execute(text(f"SELECT max(id) + 1 FROM {name}")).scalar_one()
        for name in ("trial", "run", "operating_point", "evaluation", "measurement")
    }
    number = session.execute(text("SELECT max(number) + 1 FROM trial")).scalar_one()
    own = {name: f"{start} + i" for name, start in first.items()}
    copy = _Copy(session, count)
    copy(
        "trial",
        f"id = {trial}",
        id=own["trial"],
        number=f"{number} + i",
        family=f"'family ' || (i % {FAMILIES})",
        origin="'sampler'",
        draws="json_object('width', i % 40, 'norm', 'kind ' || (i % 7), 'mixer', 'mixer ' || (i % 12))",
    )
    copy("run", f"id = {run}", id=own["run"], trial_id=own["trial"])
    copy("operating_point", f"id = {point}", id=own["operating_point"], run_id=own["run"])
    copy(
        "evaluation",
        f"operating_point_id = {point}",
        id=own["evaluation"],
        operating_point_id=own["operating_point"],
        score=_SCORE,
    )
    copy(
        "measurement",
        f"operating_point_id = {point}",
        # Two timings of each: of decoding and of prefill.
        id=f"{first['measurement']} + 2 * i + (phase = 'prefill')",
        operating_point_id=own["operating_point"],
        median=f"{_SPEED} * {_FACTOR}",
        q1=f"0.98 * {_SPEED} * {_FACTOR}",
        q3=f"1.02 * {_SPEED} * {_FACTOR}",
    )
    steps = f"WITH RECURSIVE step(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM step WHERE n < {points})"
    values = "n, n * 1024, 1.2 + 3.0 / n + (run.id % 97) / 97.0, 0.003, 1.0, NULL"
    session.execute(
        text(
            f"{steps} INSERT INTO curve_point (run_id, step, tokens, loss_nats, lr, grad_norm, aux) "
            f"SELECT run.id, {values} FROM run, step WHERE run.id >= {first['run']} ORDER BY run.id, n"
        )
    )


class _Copy:
    """Inserts copies 0 to ``count`` - 1 of rows, i being the copy's number in the expressions of changed columns."""

    def __init__(self, session: Session, count: int) -> None:
        self.session, self.count = session, count

    def __call__(self, table: str, where: str, **changed: str) -> None:
        columns = list(Base.metadata.tables[table].columns.keys())
        series = f"WITH RECURSIVE copies(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM copies WHERE i < {self.count - 1})"
        values = ", ".join(changed.get(name, name) for name in columns)
        self.session.execute(
            text(
                f"{series} INSERT INTO {table} ({', '.join(columns)}) "
                f"SELECT {values} FROM copies, (SELECT * FROM {table} WHERE {where})"
            )
        )


def plot(page: Page, within: str = "") -> None:
    expect(page.locator(f"{within} .js-plotly-plot .main-svg").first).to_be_visible()


PAINTED: dict[str, Callable[[Page], object]] = {
    "": lambda page: plot(page),
    "front": lambda page: expect(page.locator(".scatterlayer .points path.point").first).to_be_visible(),
    "candidates": lambda page: expect(
        page.locator(".st-key-candidates-table").get_by_test_id("stDataFrame")
    ).to_be_visible(),
    "candidate": lambda page: plot(page, ".st-key-curves"),
    "compare": lambda page: plot(page, "[class*=st-key-bars-]"),
    "budgets": lambda page: plot(page, ".st-key-residuals"),
    "health": lambda page: expect(page.get_by_text("Software of the latest runs")).to_be_visible(),
}
"""Page -> what stands there once it is painted."""
