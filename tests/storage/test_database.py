import multiprocessing
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from crossbreed.core.errors import StorageError
from crossbreed.storage import Database, Repository
from crossbreed.storage.locations import Mount, parse_url
from crossbreed.storage.schema import REVISION, VERSION_TABLE
from tests.services import PostgresServer
from tests.storage.material import add_run


def execute(url: str, statement: str) -> None:
    """A statement past our own code."""
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_a_file_and_its_folders_are_made_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lab" / "study.db"
    with Repository.open(str(path)) as repository:
        repository.create_study("first", {"schema": 1})
    with Repository.open(f"sqlite:///{path}") as repository:
        assert [s.name for s in repository.list_studies()] == ["first"]


def test_sqlite_runs_in_wal_mode_with_foreign_keys_and_patience(sqlite_repository: Repository) -> None:
    with sqlite_repository.database.reading() as session:
        settings = [
            session.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "foreign_keys", "synchronous")
        ]
        assert settings == ["wal", 1, 1]
        assert session.scalar(text("PRAGMA busy_timeout")) == 30_000


def test_read_only_really_refuses_writes(url: str) -> None:
    with Repository.open(url) as repository:
        repository.create_study("s", {})
    with Repository.open(url, read_only=True) as reader:
        assert [s.name for s in reader.list_studies()] == ["s"]
        with pytest.raises(StorageError, match="read-only"):
            reader.create_study("t", {})
        # Past our own check, the database itself refuses.
        with pytest.raises(StorageError, match=r"(?i)read-?only"), reader.database.reading() as session:
            session.execute(text("DELETE FROM study"))
        assert [s.name for s in reader.list_studies()] == ["s"]


def test_a_reader_neither_makes_nor_migrates(url: str, tmp_path: Path) -> None:
    if url.startswith("sqlite"):
        with pytest.raises(StorageError, match="there is no database"):
            Database.open(url, read_only=True)
        assert not (tmp_path / "study.db").exists()
    else:
        with pytest.raises(StorageError, match="is empty"):
            Database.open(url, read_only=True)
    with pytest.raises(StorageError):
        Database.open(url, create=False)


def test_a_database_from_a_newer_version_is_refused_with_both_revisions(url: str) -> None:
    with Repository.open(url) as repository:
        repository.create_study("kept", {})
    execute(url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    for read_only in (False, True):
        with pytest.raises(StorageError, match=f"'9999'.*'{REVISION}'") as caught:
            Database.open(url, read_only=read_only)
        assert caught.value.exit_code == 2
    execute(url, f"UPDATE {VERSION_TABLE} SET version_num = '{REVISION}'")
    with Repository.open(url) as repository:
        assert repository.open_study("kept").name == "kept"


def test_a_database_of_another_program_is_refused_and_left_alone(url: str) -> None:
    execute(url, "CREATE TABLE recipes (cake VARCHAR)")
    with pytest.raises(StorageError, match=r"not a crossbreed database.*recipes"):
        Database.open(url)
    execute(url, "INSERT INTO recipes VALUES ('still here')")
    if url.startswith("sqlite"):
        with sqlite3.connect(parse_url(url).database or "") as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is not a database, it is a text of some length\n" * 50)
    before = path.read_bytes()
    with pytest.raises(StorageError, match="not a database"):
        Database.open(str(path))
    assert path.read_bytes() == before


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a folder"):
        Database.open(str(tmp_path))


def test_a_server_that_is_not_there_is_a_sentence_without_the_password() -> None:
    with pytest.raises(StorageError, match="cannot be opened") as caught:
        Database.open("postgresql://ada:s3cret@127.0.0.1:1/lab")
    assert "s3cret" not in str(caught.value)


def test_a_network_file_system_is_refused_for_writing_with_the_alternative(tmp_path: Path) -> None:
    mounts = [Mount("/", "ext4"), Mount(str(tmp_path), "nfs4")]
    with pytest.raises(StorageError, match=r"nfs4.*postgresql://"):
        Database.open(str(tmp_path / "x.db"), mounts=mounts)
    assert not (tmp_path / "x.db").exists()
    Database.open(str(tmp_path / "x.db"), mounts=mounts[:1]).close()
    Database.open(str(tmp_path / "x.db"), read_only=True, mounts=mounts).close()


def open_as_stranger(path: Path) -> tuple[int, str]:
    """Exit code and message of opening a database in a process without root's power to write anywhere."""
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            Database.open(str(path)).close()
            sender.send((0, ""))
        except StorageError as error:
            sender.send((error.exit_code, str(error)))

    # A fork has its modules loaded: a stranger may not be allowed to read the interpreter's.
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    sender.close()
    try:
        code, message = receiver.recv()
    finally:
        process.join()
    return code, message


@pytest.fixture
def locked_folder() -> Iterator[Path]:
    """A folder with a database that strangers may read and nobody but root may write."""
    folder = Path(tempfile.mkdtemp())
    with Repository.open(str(folder / "study.db")) as repository:
        repository.create_study("s", {})
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["study.db", "other.db"])
def test_a_read_only_folder_is_a_sentence_and_exit_code_2(locked_folder: Path, name: str) -> None:
    code, message = open_as_stranger(locked_folder / name)
    assert code == 2
    assert "is read-only for this user" in message
    assert not (locked_folder / "other.db").exists()


def test_a_folder_that_cannot_be_made_is_a_sentence(locked_folder: Path) -> None:
    code, message = open_as_stranger(locked_folder / "deep" / "x.db")
    assert code == 2
    assert "cannot be made" in message


def test_threads_share_a_repository(sqlite_repository: Repository) -> None:
    sqlite_repository.create_study("s", {})
    with ThreadPoolExecutor(4) as pool:
        names = list(pool.map(lambda _: sqlite_repository.open_study("s").name, range(40)))
    assert names == ["s"] * 40


def test_a_batch_is_one_transaction(repository: Repository) -> None:
    study = repository.create_study("s", {})
    with pytest.raises(ZeroDivisionError), repository.batch():  # noqa: PT012
        repository.add_event(study.id, "one")
        add_run(repository, "s")
        assert len(repository.events(study.id)) == 1  # the thread that writes sees its own writes
        raise ZeroDivisionError
    assert repository.events(study.id) == []
    assert repository.trials(study.id) == []


def test_a_full_disk_is_a_sentence_and_loses_nothing_stored(tmp_path: Path) -> None:
    with Repository.open(str(tmp_path / "x.db")) as repository:
        study = repository.create_study("s", {})
        with repository.database.writing() as session:
            pages = session.scalar(text("PRAGMA page_count"))
        with pytest.raises(StorageError, match="full"), repository.batch():  # noqa: PT012
            with repository.database.writing() as session:
                session.execute(text(f"PRAGMA max_page_count={pages}"))
            for _ in range(100):
                repository.add_event(study.id, "x", {"text": "y" * 4000})
        assert [s.name for s in repository.list_studies()] == ["s"]
        assert repository.events(study.id) == []


def test_a_copied_database_is_readable_where_it_was_copied(tmp_path: Path) -> None:
    source = tmp_path / "a.db"
    with Repository.open(str(source)) as repository:
        repository.create_study("s", {})
    shutil.copy(source, tmp_path / "b.db")
    with Repository.open(str(tmp_path / "b.db"), read_only=True) as reader:
        assert reader.open_study("s").name == "s"


def test_connections_survive_a_restart_of_the_server(postgres: PostgresServer, postgres_url: str) -> None:
    with Repository.open(postgres_url) as repository:
        repository.create_study("s", {})
        with postgres.restarted(), pytest.raises(StorageError, match="cannot be read"):
            repository.list_studies()
        assert [s.name for s in repository.list_studies()] == ["s"]
