from pathlib import Path

import pytest

from crossbreed.core.errors import StorageError
from crossbreed.storage.locations import (
    Mount,
    artefacts_of,
    mount_table,
    network_filesystem,
    parse_url,
    redacted,
)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:s3cret%2Fword@db.example:5433/lab",
        "postgresql+psycopg://ada:s3cret%2Fword@db.example/lab",
        "postgresql://ada@db.example/lab?password=s3cret%2Fword",
        "postgresql://ada@db.example/lab?sslpassword=s3cret%2Fword&sslmode=require",
    ],
)
def test_a_password_is_never_shown_wherever_it_stands(url: str) -> None:
    for shown in (redacted(url), redacted(parse_url(url))):
        assert "s3cret" not in shown
        assert "***" in shown
        assert "ada" in shown
        assert "db.example" in shown


def test_an_unreadable_url_is_not_shown_at_all() -> None:
    assert "s3cret" not in redacted("postgresql://ada:s3cret@host:notaport/x")
    with pytest.raises(StorageError) as caught:
        parse_url("postgresql://ada:s3cret@host:notaport/x")
    assert "s3cret" not in str(caught.value)


def test_a_path_is_a_sqlite_file_and_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = str(tmp_path / "a b.db")
    assert parse_url("a b.db").database == parse_url("sqlite:///a b.db").database == expected


def test_postgresql_means_psycopg_3() -> None:
    assert parse_url("postgresql://h/d").drivername == "postgresql+psycopg"


@pytest.mark.parametrize("url", ["mysql://h/d", "sqlite://", "sqlite:///:memory:"])
def test_other_databases_and_sqlite_without_a_file_are_refused(url: str) -> None:
    with pytest.raises(StorageError, match="sqlite:///"):
        parse_url(url)


def test_artefacts_lie_beside_the_file() -> None:
    assert artefacts_of("sqlite:////data/lab/crossbreed.db").place == "/data/lab/crossbreed-artefacts"


TABLE = """\
/dev/vda / ext4 rw 0 0
server:/export /home nfs4 rw,vers=4.2 0 0
/dev/vdb /home/local\\040disk xfs rw 0 0
//nas/share /mnt/share cifs rw 0 0
ada@host:/ /mnt/ssh fuse.sshfs rw 0 0
tmpfs /home/ada/scratch tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ada/x.db", "nfs4"),
        ("/home/local disk/x.db", None),
        ("/home/ada/scratch/deep/x.db", None),
        ("/mnt/share/x.db", "cifs"),
        ("/mnt/ssh/x.db", "fuse.sshfs"),
        ("/mnt/shared/x.db", None),
        ("/var/x.db", None),
    ],
)
def test_the_deepest_mount_says_whether_a_path_is_on_the_network(path: str, kind: str | None) -> None:
    assert network_filesystem(path, mount_table(TABLE)) == kind


def test_of_two_mounts_at_one_point_the_later_one_counts() -> None:
    stacked = [Mount("/", "ext4"), Mount("/data", "ext4"), Mount("/data", "nfs")]
    assert network_filesystem("/data/x.db", stacked) == "nfs"
    assert network_filesystem("/data/x.db", [*stacked, Mount("/data", "xfs")]) is None
