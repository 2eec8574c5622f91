import re
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, inspect, text

import crossbreed.storage
from crossbreed.core.errors import StorageError
from crossbreed.storage import Database, Repository
from crossbreed.storage.database import alembic_config
from crossbreed.storage.schema import REVISION, VERSION_TABLE, Base
from crossbreed.storage.states import STATES
from tests.storage.material import add_run, curve, running, speed


def test_the_models_describe_the_last_revision() -> None:
    script = ScriptDirectory.from_config(alembic_config())
    assert script.get_heads() == [REVISION]


def test_migrating_from_nothing_gives_exactly_the_models(url: str) -> None:
    with Database.open(url) as database, database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []
        # Alembic does not compare check constraints, so we do: by name, and by what the state check lets in.
        for table in Base.metadata.sorted_tables:
            wanted = {c.name for c in table.constraints if isinstance(c, CheckConstraint)}
            found = inspect(connection).get_check_constraints(table.name)
            assert {c["name"] for c in found} == wanted
            for check in found:
                assert set(re.findall(r"'(\w+)'", check["sqltext"])) == set(STATES)


def test_going_down_and_up_again_leaves_the_same_tables(url: str) -> None:
    with Database.open(url) as database:
        config = alembic_config()
        with database.engine.begin() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "base")
            assert set(inspect(connection).get_table_names()) == {VERSION_TABLE}
        with database.engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert compare_metadata(context, Base.metadata) == []


def test_results_of_the_first_revision_are_kept(url: str) -> None:
    with Repository.open(url) as repository:
        run = add_run(repository, seed=2)
        lease = running(repository, run)
        repository.record_curve(run.id, lease, curve(0, 5))
        repository.record_profile(run.id, lease, "own", [speed(10.0)], rates={"mode": (0.5, 0.5)})
        repository.record_finished(run.id, lease, "done")
        again = repository.add_run(run.trial_id, 3, recipe={"lr": 0.5}, identities={}, role="report")
        before = (repository.trial_detail(run.study_id, 0), repository.curve(run.id))
        config = alembic_config()
        with repository.database.engine.begin() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "0001")
            assert "analytics" not in inspect(connection).get_table_names()
            assert "role" not in {column["name"] for column in inspect(connection).get_columns("run")}
    # A reader, such as the dashboard, changes nothing and says what would.
    with pytest.raises(StorageError, match=rf"older revision than '{REVISION}'.*any command that writes"):
        Repository.open(url, read_only=True)
    with Repository.open(url) as repository:
        assert (repository.trial_detail(run.study_id, 0), repository.curve(run.id)) == before
        # The first run chose its trial, later ones were fresh seeds; what they were is told by their order alone.
        assert {r.id: r.role for r in repository.runs(run.study_id)} == {run.id: "tune", again.id: "report"}
        assert repository.analytics(run.id) == {}
        assert repository.record_analytics(run.id, lease, "own", {"experts": {}}, version=1, tokens=1, rows=1)
    with Repository.open(url, read_only=True) as repository:
        assert list(repository.analytics(run.id)) == ["experts"]


def test_speeds_measured_before_neighbours_were_watched_for_say_so(url: str) -> None:
    with Repository.open(url) as repository:
        run = add_run(repository)
        lease = running(repository, run)
        repository.record_profile(run.id, lease, "own", [speed(10.0, neighbours="")])
        with repository.database.engine.begin() as connection:
            config = alembic_config()
            config.attributes["connection"] = connection
            command.downgrade(config, "0002")
            assert "neighbours" not in {c["name"] for c in inspect(connection).get_columns("measurement")}
    with Repository.open(url) as repository:
        (kept,) = repository.trial_detail(run.study_id, 0).runs[0].points["own"].measurements
        assert (kept.median, kept.neighbours) == (10.0, None)
        repository.record_profile(run.id, lease, "own", [speed(11.0, neighbours="another process")])
        (kept,) = repository.trial_detail(run.study_id, 0).runs[0].points["own"].measurements
        assert (kept.median, kept.neighbours) == (11.0, "another process")


def test_a_migration_that_fails_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def migrate(connection: object) -> None:
        connection.execute(text("CREATE TABLE study (id INTEGER)"))  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("crossbreed.storage.database.migrate", migrate)
        with pytest.raises(KeyboardInterrupt):
            Database.open(url)
    with Database.open(url) as database, database.reading() as session:
        assert session.scalar(text("SELECT count(*) FROM trial")) == 0


def test_migration_files_are_part_of_the_package() -> None:
    folder = Path(crossbreed.storage.__file__).parent / "migrations"
    assert {p.name for p in folder.iterdir()} >= {"env.py", "script.py.mako", "versions", "__init__.py"}
    # A wheel holds folders with an __init__.py.
    assert (folder / "versions" / "__init__.py").exists()


def test_an_older_database_is_not_changed_by_a_reader(url: str) -> None:
    with Database.open(url) as database, database.engine.begin() as connection:
        connection.execute(text(f"DELETE FROM {VERSION_TABLE}"))
        connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES ('0000')"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("crossbreed.storage.database.revisions", lambda: {"0000", REVISION})
        with pytest.raises(StorageError, match="older revision"):
            Database.open(url, read_only=True)
        with pytest.raises(StorageError, match="older revision"):
            Database.open(url, create=False)
