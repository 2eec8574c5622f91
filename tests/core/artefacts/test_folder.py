from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError


def test_files_of_a_folder_are_read_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with Artefacts.at(tmp_path).local("a") as path:
        assert path == tmp_path / "a"


def test_links_that_lead_out_are_not_followed_and_those_within_are(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret").write_bytes(b"mine")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "real").mkdir()
    (root / "within").symlink_to(root / "real")
    artefacts = Artefacts.at(root)
    for act in (
        lambda: artefacts.read("file"),
        lambda: artefacts.read("folder/secret"),
        lambda: artefacts.under("folder").read("secret"),
        lambda: artefacts.write("folder/deep/x", b"x"),
        lambda: artefacts.append("folder/log", b"x"),
        lambda: artefacts.delete("folder/secret"),
    ):
        with pytest.raises(ConfigError, match="leads out of the artefact folder"):
            act()
    assert sorted(p.name for p in outside.rglob("*")) == ["deep", "secret"]
    artefacts.write("within/x", b"x")
    assert (root / "real" / "x").read_bytes() == b"x"
    # The place itself may be a link: that is its user's choice.
    (tmp_path / "linked").symlink_to(root)
    assert Artefacts.at(tmp_path / "linked").read("within/x") == b"x"


def test_only_drafts_of_ours_are_dropped(tmp_path: Path) -> None:
    for name in (".a.safetensors.77", ".hidden", "a.77", ".nfs0001"):
        (tmp_path / name).write_bytes(b"x")
    Artefacts.at(tmp_path).drop_drafts()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", ".nfs0001", "a.77"]
