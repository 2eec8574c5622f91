from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from crossbreed.core.artefacts import Artefacts, confined
from crossbreed.core.artefacts.folder import Folder
from crossbreed.core.artefacts.objects import Objects
from crossbreed.core.errors import ConfigError

PIECES = st.sampled_from(
    ["a", "b-0", "..", ".", "", "/", "\\", ":", "//", "::", "~", "%2e%2e", "\0", "\n", "é"]
)


@given(st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=30))
def test_a_name_that_is_taken_stays_below_its_place(name: str) -> None:
    try:
        confined(name)
    except ConfigError:
        reject()
    parts = PurePosixPath("/root", name).parts
    assert parts[:2] == ("/", "root")
    assert len(parts) > 2
    assert ".." not in parts
    # As it stands: nothing is dropped on the way to a store that compares names letter by letter.
    assert "/".join(parts[2:]) == name
    assert Artefacts.at("/root").under(name).place == f"/root/{name}"
    assert Artefacts.at("memory://root").under(name).place == f"memory://root/{name}"


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}(/[a-z0-9][a-z0-9._-]{0,9}){0,3}", fullmatch=True))
def test_ordinary_names_are_taken(name: str) -> None:
    assert confined(name) == name


@pytest.mark.parametrize(
    ("place", "shown", "kind"),
    [
        ("/data/x", "/data/x", Folder),
        ("file:///data/x", "/data/x", Folder),
        ("local:///data/x", "/data/x", Folder),
        ("S3://bucket/folder/", "s3://bucket/folder", Objects),
        ("memory://", "memory://", Objects),
        ("sftp://host:22/a@b", "sftp://host:22/a@b", Objects),
        ("abfs://container@account.dfs.core.windows.net/x", "abfs://container@account.dfs.core.windows.net/x", Objects),
    ],
)  # fmt: skip
def test_places_are_paths_or_urls(place: str, shown: str, kind: type[Artefacts]) -> None:
    found = Artefacts.at(place)
    assert (found.place, type(found)) == (shown, kind)


def test_a_file_is_told_from_its_folder() -> None:
    for place, folder, name in (
        ("/data/x.zip", "/data", "x.zip"),
        ("s3://bucket/a/x.zip", "s3://bucket/a", "x.zip"),
        ("memory://x.zip", "memory://", "x.zip"),
    ):
        found, file = Artefacts.file(place)
        assert (found.place, file) == (folder, name)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("sftp://me:hunter2@host/x", r"'sftp://\*\*\*@host/x' name a password; .* FSSPEC_SFTP_OPTION"),
        ("s3://AKIA:hunter2/x@b/x", r"'s3://\*\*\*@b/x' name a password"),
        ("simplecache::s3://b/x", "chain of URLs"),
        ("s3://b/x::file:///y", "chain of URLs"),
        ("simplecache::sftp://me:hunter2@host/x", "chain of URLs"),
        ("s3://", "name no bucket or folder"),
    ],
)
def test_urls_that_cannot_be_places_are_refused_and_never_show_a_password(place: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        Artefacts.at(place)
    assert "hunter2" not in str(refused.value)
