from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_a_study_moves_from_one_database_to_another(cli: Cli, db: Path, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    written = cli("study", "export", "small", "backups", "--db", db, "--json").json("study_export")
    assert written["file"] == "backups/small.zip"
    assert (written["rows"]["trial"], written["rows"]["run"], written["files"]) == (4, 12, 0)
    again = cli("study", "export", "small", "backups", "--db", db)
    assert again.code == 2
    assert "exists already" in again.err
    taken = cli("study", "import", "backups/small.zip", "--db", "there.db", "--json").json("study_import")
    assert not taken["already_there"]
    assert taken["sha256"] == written["sha256"]
    here, there = (cli("front", "--db", place, "--all", "--json").json("front") for place in (db, "there.db"))
    assert here == there
    assert "is in" in cli("study", "import", "backups/small.zip", "--db", "there.db").out
    assert "nothing was changed" in cli("study", "import", "backups/small.zip", "--db", "there.db").out
    assert "4 candidates, 12 runs" in cli("study", "import", "backups/small.zip", "--db", "third.db").out


def test_what_is_not_there_is_a_sentence(cli: Cli, db: Path) -> None:
    assert (
        "unknown study 'smal'; did you mean 'small'?"
        in cli("study", "export", "smal", "x.zip", "--db", db).err
    )
    result = cli("study", "import", "x.zip", "--db", db)
    assert result.code == 2
    assert "archive 'x.zip' does not exist." in result.err
