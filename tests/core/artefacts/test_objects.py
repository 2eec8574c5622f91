"""Stores that fail, lie, or are not there."""

from __future__ import annotations

import socket
from pathlib import Path

import fsspec.config
import pytest

from crossbreed.core.artefacts import Artefacts, patience, patiently
from crossbreed.core.errors import ArtefactsLost, ConfigError, DiskFull
from tests.support import buckets
from tests.support.buckets import SECRET, order


def there(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "b").iterdir())


@pytest.mark.parametrize("after", [0, 3])
def test_a_put_that_fails_leaves_nothing_of_it_and_what_was_there(bucket: Path, after: int) -> None:
    artefacts = Artefacts.at("bucket://b/x")
    order(bucket, {"part": "x/a", "after": after})
    with pytest.raises(
        ArtefactsLost, match=f"'bucket://b/x' cannot be written from host '{socket.gethostname()}'"
    ):
        artefacts.write("a", b"0123456789")
    assert there(bucket) == []
    artefacts.write("a", b"0123456789")
    assert artefacts.read("a") == b"0123456789"


def test_what_a_store_gave_up_half_way_over_an_older_object_is_not_read_as_either(bucket: Path) -> None:
    artefacts = Artefacts.at("bucket://b/x")
    artefacts.write("a", b"before")
    order(bucket, {"part": "x/a", "after": 0})
    with pytest.raises(ArtefactsLost):
        artefacts.write("a", b"0123456789")
    assert artefacts.read("a") == b"before"
    order(bucket, {"part": "x/a", "after": 3})
    with pytest.raises(ArtefactsLost):
        artefacts.write("a", b"0123456789")
    assert there(bucket) == []


def test_a_store_that_keeps_less_than_it_took_is_found_out(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = buckets.Buckets.pipe_file
    monkeypatch.setattr(buckets.Buckets, "pipe_file", lambda self, path, value: whole(self, path, value[:-1]))
    with pytest.raises(ArtefactsLost, match="9 of 10 bytes of 'a' arrived"):
        Artefacts.at("bucket://b/x").write("a", b"0123456789")
    assert there(bucket) == []


def test_an_append_that_fails_is_made_in_its_place_the_next_time(bucket: Path) -> None:
    artefacts = Artefacts.at("bucket://b/x")
    artefacts.append("log", b"1\n")
    order(bucket, {"part": "x/log", "after": 1})
    with pytest.raises(ArtefactsLost):
        artefacts.append("log", b"2\n")
    artefacts.append("log", b"2\n")
    artefacts.append("log", b"3\n")
    assert artefacts.log("log") == b"1\n2\n3\n"


def test_patience_sees_two_failures_through_and_not_three(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "WAITS_S", (0.0, 0.0))
    artefacts = Artefacts.at("bucket://b/x")
    order(bucket, {"part": "x/a", "times": 2}, {"part": "x/b", "times": 3, "after": 5})
    patiently(lambda: artefacts.write("a", b"0123456789"), "file 'a' could not be written")
    assert artefacts.read("a") == b"0123456789"
    with pytest.raises(
        DiskFull, match=r"^file 'b' could not be written \(artefacts .* was reset\), nor 2 times more$"
    ):
        patiently(lambda: artefacts.write("b", b"0123456789"), "file 'b' could not be written")
    assert there(bucket) == ["x%2Fa"]
    # A bug is none of the store's faults.
    with pytest.raises(ZeroDivisionError):
        patiently(lambda: 1 / 0, "it")


def test_secrets_are_in_no_message(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artefacts = Artefacts.at("bucket://b/x")
    order(bucket, {"part": "x/a"})
    with pytest.raises(ArtefactsLost) as lost:
        artefacts.write("a", b"x")
    assert "with secret *** was reset" in str(lost.value)
    assert lost.value.__suppress_context__
    assert SECRET not in repr(artefacts) + artefacts.place
    wrong = {"folder": str(bucket), "secret": "another-secret"}
    monkeypatch.setitem(fsspec.config.conf, "bucket", wrong)
    with pytest.raises(
        ArtefactsLost,
        match=r"cannot be opened from host .*PermissionError: secret '\*\*\*' is not the store's",
    ):
        Artefacts.at("bucket://b/x").reach()


def test_a_bucket_that_is_not_there_is_not_made(bucket: Path) -> None:
    with pytest.raises(
        ArtefactsLost, match=r"'bucket://other/x' cannot be written .*'other' does not exist; make it first"
    ):
        Artefacts.at("bucket://other/x").check()
    assert not (bucket / "other").exists()


def test_a_scheme_without_a_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.registry import known_implementations

    missing = {"class": "nowherefs.NowhereFileSystem", "err": "Install nowherefs"}
    monkeypatch.setitem(known_implementations, "nowhere", missing)
    with pytest.raises(
        ConfigError,
        match=r"'nowhere://b/x' need a driver for scheme 'nowhere', which is not installed: pip install nowherefs$",
    ):
        Artefacts.at("nowhere://b/x").reach()
    with pytest.raises(ConfigError, match="have scheme 'nothing', which no installed driver serves"):
        Artefacts.at("nothing://b/x").names()


def test_memory_is_one_processs_own() -> None:
    assert not Artefacts.at("memory://x").shared
    assert Artefacts.at("s3://b/x").shared
    assert Artefacts.at("/x").shared


def test_what_others_write_is_seen_though_a_store_keeps_listings(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, list] = {}
    ls = buckets.Buckets.ls

    def keeping(self: buckets.Buckets, path: str, detail: bool = True) -> list:
        if path not in kept:
            kept[path] = ls(self, path, detail)
        return kept[path]

    monkeypatch.setattr(buckets.Buckets, "ls", keeping)
    monkeypatch.setattr(buckets.Buckets, "invalidate_cache", lambda self, path=None: kept.clear())
    artefacts = Artefacts.at("bucket://b/x")
    artefacts.write("a", b"1")
    assert artefacts.names() == ["a"]
    (bucket / "b" / "x%2Fb").write_bytes(b"2")
    assert artefacts.names() == ["a", "b"]
