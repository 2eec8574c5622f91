"""A study as a file: the same from every database, taken in once, wholly or not at all, and only where it may lie."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError
from crossbreed.storage import Repository, archive, unarchive
from crossbreed.storage.archive import tables
from crossbreed.storage.schema import Base
from tests.storage.material import add_trial, curve, leased, running, speed

STUDY = {"schema": 1, "objectives": {"score": "max", "decode_tokens_per_s": "max"}, "α": "β"}
CHECKPOINT = b"weights" * 1000


def fill(repository: Repository, name: str = "first") -> None:
    """A study with a row in every table, beside another one, so that its ids are not the first ones."""
    other = repository.create_study("other", {})
    add_trial(repository, other.id, "shared")
    study = repository.create_study(name, STUDY)
    repository.fix_reference_point(study.id, {"score": 0.0, "decode_tokens_per_s": 0.0})
    repository.add_plugin_file(study.id, "/home/me/my router.py", "a" * 64, "print('never run')\n")
    for number, genome in enumerate(("z", "shared", "a")):
        trial = add_trial(repository, study.id, genome, draws={"width": 8, "a": [1.0, None]})
        run = repository.add_run(trial.id, 0, recipe={"lr": 1e-3}, identities={"mixer:attention": "0.1.0"})
        if number == 2:
            repository.lease_run(run.id, "worker", seconds=60)
            continue
        lease = running(repository, run)
        repository.record_curve(run.id, lease, [*curve(1, 6), *curve(6, 7, float("nan"))])
        path = f"{name}/{number}/0/rung-0.ckpt"
        sha256 = hashlib.sha256(CHECKPOINT).hexdigest()
        file = repository.artefacts.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(CHECKPOINT)
        repository.record_rung(
            run.id, lease, rung=0, tokens=192, metrics={"accuracy": 1 / 3}, checkpoint=path, sha256=sha256
        )
        repository.record_artefact(
            run.id, lease, kind="checkpoint", path=path, sha256=sha256, bytes=len(CHECKPOINT)
        )
        repository.record_profile(run.id, lease, "own", [speed(123.456)])
        repository.record_evaluation(
            run.id, lease, "own", tokens=32, metrics={"accuracy": 0.1 + 0.2}, score=0.1 + 0.2, rows=64
        )
        repository.record_analytics(run.id, lease, "own", {"k": {"x": 1}}, version=1, tokens=192, rows=8)
        repository.record_finished(run.id, lease, "done")
    repository.add_event(study.id, "repeat", {"trial": 1, "seed": 2})


@pytest.fixture
def exported(migrated_file: Path, tmp_path: Path) -> Path:
    with elsewhere(migrated_file, tmp_path, "source") as source:
        fill(source)
        path = tmp_path / "first.zip"
        archive.write(source.database, "first", path, files=True)
    return path


def elsewhere(migrated_file: Path, tmp_path: Path, name: str = "there") -> Repository:
    folder = tmp_path / name
    folder.mkdir()
    return Repository.open(shutil.copy(migrated_file, folder))


def test_every_table_of_a_study_is_taken_along(exported: Path) -> None:
    names = {table.name for table in tables()}
    assert names == {t.name for t in Base.metadata.sorted_tables} - {"driver_lease"}
    with zipfile.ZipFile(exported) as opened:
        rows = json.loads(opened.read("manifest.json"))["rows"]
        assert {name for name, count in rows.items() if count} == names
        assert opened.read("plugins/aaaaaaaaaaaa-my router.py") == b"print('never run')\n"
        assert opened.read("artefacts/first/0/0/rung-0.ckpt") == CHECKPOINT
        runs = [json.loads(text) for text in opened.read("tables/run.jsonl").splitlines()]
    # What was with a worker waits in the copy.
    assert [(run["state"], run["lease"], run["worker"]) for run in runs[2:]] == [("queued", None, None)]


def test_there_and_back_is_the_same_file_whatever_the_database(
    exported: Path,
    repository: Repository,
    migrated_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repository.database, "artefacts", Artefacts.at(tmp_path / "there" / "files"))
    filler = repository.create_study("filler", {})
    add_trial(repository, filler.id, "shared")
    _, known = unarchive.read(repository.database, exported)
    assert not known
    again = tmp_path / "again.zip"
    archive.write(repository.database, "first", again, files=True)
    assert again.read_bytes() == exported.read_bytes()
    # A third database has the same rows as the first one.
    with elsewhere(migrated_file, tmp_path, "third") as third:
        unarchive.read(third.database, again)
        study = third.open_study("first")
        assert list(study.spec) == list(STUDY)
        assert list(study.spec["objectives"]) == ["score", "decode_tokens_per_s"]
        points = third.curve(third.run_by_key("first/0/0").id)
        assert [p.loss_nats for p in points] == [2.0] * 5 + [None]
        detail = third.trial_detail(study.id, 1)
        own = detail.runs[0].points["own"]
        assert own.evaluations[0].score == 0.1 + 0.2
        assert (third.artefacts.path / "first/1/0/rung-0.ckpt").read_bytes() == CHECKPOINT
        assert third.run_by_key("first/2/0").state == "queued"


def test_an_import_works_on_in_the_new_database(
    exported: Path, repository: Repository, tmp_path: Path
) -> None:
    repository.database.artefacts = Artefacts.at(tmp_path / "files")
    unarchive.read(repository.database, exported)
    study = repository.open_study("first")
    trial = add_trial(repository, study.id, "fresh")
    assert trial.number == 3
    run = repository.run_by_key("first/2/0")
    assert leased(repository, run)


def test_twice_is_as_once_and_another_study_of_that_name_is_refused(
    exported: Path, migrated_file: Path, tmp_path: Path
) -> None:
    with elsewhere(migrated_file, tmp_path) as there:
        assert unarchive.read(there.database, exported)[1] is False
        assert unarchive.read(there.database, exported)[1] is True
        there.add_event(there.open_study("first").id, "repeat")
        with pytest.raises(
            ConfigError, match=r"study 'first' is in database .* already, and is not the one in"
        ):
            unarchive.read(there.database, exported)


def test_without_files_only_rows_are_written(sqlite_repository: Repository, tmp_path: Path) -> None:
    fill(sqlite_repository)
    contents = archive.write(sqlite_repository.database, "first", tmp_path / "rows.zip")
    assert contents.files == 0
    with zipfile.ZipFile(tmp_path / "rows.zip") as opened:
        assert not [name for name in opened.namelist() if name.startswith("artefacts/")]


def test_a_changed_or_missing_file_stops_the_export_and_leaves_nothing(
    sqlite_repository: Repository, tmp_path: Path
) -> None:
    fill(sqlite_repository)
    file = sqlite_repository.artefacts.path / "first/0/0/rung-0.ckpt"
    file.write_bytes(b"other")
    with pytest.raises(ConfigError, match="it was changed"):
        archive.write(sqlite_repository.database, "first", tmp_path / "x.zip", files=True)
    file.unlink()
    with pytest.raises(ConfigError, match="is missing; export without files"):
        archive.write(sqlite_repository.database, "first", tmp_path / "x.zip", files=True)
    assert not list(tmp_path.glob("x.zip*"))
    (tmp_path / "x.zip").touch()
    with pytest.raises(ConfigError, match="exists already"):
        archive.write(sqlite_repository.database, "first", tmp_path / "x.zip")


Change = Callable[[dict[str, list[dict[str, Any]]], dict[str, Any]], None]


def forged(source: Path, target: Path, change: Change, *, resign: bool = True, drop: str = "") -> Path:
    """The archive with its rows or manifest changed, signed anew as somebody with bad intent would."""
    with zipfile.ZipFile(source) as opened:
        members = {name: opened.read(name) for name in opened.namelist() if name != drop}
    manifest = json.loads(members["manifest.json"])
    rows = {
        t.name: [json.loads(text) for text in members[f"tables/{t.name}.jsonl"].splitlines()]
        for t in tables()
        if f"tables/{t.name}.jsonl" in members
    }
    change(rows, manifest)
    digest = hashlib.sha256()
    for name, found in rows.items():
        lines = [archive.line(row) for row in found]
        members[f"tables/{name}.jsonl"] = b"".join(lines)
        for text in lines:
            digest.update(name.encode() + b" " + text)
    if resign:
        manifest["sha256"] = digest.hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(target, "w") as out:
        for name, data in members.items():
            out.writestr(name, data)
    return target


def at(table: str, column: str, value: Any) -> Change:
    def change(rows: dict[str, list[dict[str, Any]]], manifest: dict[str, Any]) -> None:
        rows[table][0][column] = value

    return change


def says(key: str, value: Any) -> Change:
    def change(rows: dict[str, list[dict[str, Any]]], manifest: dict[str, Any]) -> None:
        manifest[key] = value

    return change


BAD: list[tuple[Change, str]] = [
    (at("artefact", "path", "../../etc/passwd"), "must lie in 'first/'"),
    (at("artefact", "path", "/etc/passwd"), "must lie in 'first/'"),
    (at("artefact", "path", "first/../../x"), "must lie in 'first/'"),
    (at("artefact", "path", "other/0/0/rung-0.ckpt"), "must lie in 'first/'"),
    (at("rung", "checkpoint", "first\\..\\x"), "must lie in 'first/'"),
    (at("artefact", "bytes", 10), "file 'first/0/0/rung-0.ckpt' is not the one it was written with"),
    (at("artefact", "sha256", "0" * 64), "file 'first/0/0/rung-0.ckpt' is not the one it was written with"),
    (at("run", "trial_id", 99), "points to trial 99, which it does not hold"),
    (at("run", "seed", "0"), "has run.seed '0'; it must be a whole number"),
    (at("run", "seed", True), "has run.seed 'True'; it must be a whole number"),
    (at("run", "state", "finished"), "breaks a rule of the database"),
    (at("run", "created_at", "yesterday"), "has run.created_at"),
    (at("trial", "genome", None), "has a row of table 'trial' that is not one of ours"),
    (at("study", "name", "second"), "says it holds 'first', but holds 'second'"),
    (at("architecture", "genome", None), "has architecture.genome"),
    (says("study", "a/b"), "study name 'a/b' breaks the rule"),
    (says("revision", "9999"), "is of revision '9999'"),
    (says("schema", "zip"), "is not an archive that `crossbreed study export` wrote"),
    (says("rows", None), "is not an archive that `crossbreed study export` wrote"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_what_is_not_ours_is_refused_and_leaves_nothing(
    exported: Path, migrated_file: Path, tmp_path: Path, change: Change, sentence: str
) -> None:
    bad = forged(exported, tmp_path / "bad.zip", change)
    with elsewhere(migrated_file, tmp_path) as there:
        with pytest.raises(ConfigError) as caught:
            unarchive.read(there.database, bad)
        assert sentence in str(caught.value)
        assert there.list_studies() == []
        with there.database.reading() as session:
            architectures = Base.metadata.tables["architecture"]
            assert session.execute(select(architectures)).all() == []
        files = there.artefacts.path
    assert not [f for f in files.rglob("*") if f.is_file()] if files.exists() else True


def test_damage_is_found(exported: Path, migrated_file: Path, tmp_path: Path) -> None:
    def nothing(rows: Any, manifest: Any) -> None:
        pass

    with elsewhere(migrated_file, tmp_path) as there:
        for bad, why in (
            (
                forged(exported, tmp_path / "1.zip", at("run", "seed", 7), resign=False),
                "its rows are not those",
            ),
            (
                forged(exported, tmp_path / "2.zip", nothing, drop="artefacts/first/1/0/rung-0.ckpt"),
                "lacks file",
            ),
            (tmp_path / "nowhere.zip", "does not exist"),
        ):
            with pytest.raises(ConfigError, match=why):
                unarchive.read(there.database, bad)
        (tmp_path / "text.zip").write_text("no zip")
        with pytest.raises(ConfigError, match="cannot be read: File is not a zip file"):
            unarchive.read(there.database, tmp_path / "text.zip")
        assert there.list_studies() == []


def test_a_link_out_of_the_artefact_folder_is_not_followed(
    exported: Path, migrated_file: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with elsewhere(migrated_file, tmp_path) as there:
        there.artefacts.path.mkdir(parents=True)
        (there.artefacts.path / "first").symlink_to(outside)
        with pytest.raises(ConfigError, match="leads out of the artefact folder"):
            unarchive.read(there.database, exported)
    assert not list(outside.iterdir())


def test_a_file_that_is_another_one_is_not_replaced(
    exported: Path, migrated_file: Path, tmp_path: Path
) -> None:
    with elsewhere(migrated_file, tmp_path) as there:
        file = there.artefacts.path / "first/1/0/rung-0.ckpt"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"mine")
        with pytest.raises(ConfigError, match="exists already and is another one"):
            unarchive.read(there.database, exported)
        assert file.read_bytes() == b"mine"
        assert not (there.artefacts.path / "first/0/0/rung-0.ckpt").exists()


def test_an_architecture_that_is_stored_otherwise_is_refused(
    exported: Path, migrated_file: Path, tmp_path: Path
) -> None:
    with elsewhere(migrated_file, tmp_path) as there:
        add_trial(there, there.create_study("other", {}).id, "shared", genome={"vocab": 1})
        with pytest.raises(ConfigError, match="is stored already, and is another one"):
            unarchive.read(there.database, exported)
