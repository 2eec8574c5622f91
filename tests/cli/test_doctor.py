from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from fsspec.registry import known_implementations

from tests.cli.conftest import Cli
from tests.cli.studies import write_study


def checks(cli: Cli, *arguments: object) -> dict[str, dict[str, object]]:
    return {item["name"]: item for item in cli("doctor", "--json", *arguments).json("doctor")["checks"]}


def test_what_a_search_needs_is_found_and_absent_parts_have_a_fix(cli: Cli) -> None:
    found = checks(cli)
    for name in ("python", "torch", "ray", "streamlit", "sqlalchemy", "cpu", "reference"):
        assert found[name]["state"] == "ok", found[name]
    assert all(item["fix"] for item in found.values() if item["state"] != "ok")
    assert "attention" in str(found["reference"]["detail"])


def test_backends_are_those_that_mixers_state(cli: Cli, tmp_path: Path) -> None:
    plugin = tmp_path / "kernels.py"
    plugin.write_text(
        "from dataclasses import replace\n"
        "from crossbreed import hookimpl\n"
        "from crossbreed.core.host import Host\n"
        "@hookimpl\n"
        "def register_mixers():\n"
        "    attention = Host.load(third_party=False).descriptor('mixer', 'attention')\n"
        "    can = replace(attention.capabilities, backends=('reference', 'flex', 'mamba_ssm', 'mine'))\n"
        "    return [replace(attention, name='my_attention', capabilities=can)]\n"
    )
    plain, found = checks(cli), checks(cli, "--plugin", plugin)
    assert "flex" not in plain
    # PyTorch has the kernels wherever it is; they serve a device.
    assert plain["sdpa"]["state"] in ("ok", "absent")
    assert found["flex"]["state"] == "ok"
    assert str(found["flex"]["detail"]).endswith("my_attention")
    assert found["mine"]["state"] == "ok"
    assert found["mamba_ssm"]["state"] in ("ok", "absent", "broken")
    assert "crossbreed[cuda]" in str(found["mamba_ssm"]["fix"]) or found["mamba_ssm"]["state"] == "ok"


def test_the_browser_and_the_server_are_looked_for(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    found = checks(cli)
    assert found["chromium"]["state"] == "absent"
    assert "package chromium" in str(found["chromium"]["fix"])
    assert "postgres" in found


def test_a_database_of_something_else_is_broken_and_exit_1(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    result = cli("doctor", "--db", path)
    assert result.code == 1
    assert "not a crossbreed database" in result.out
    assert checks(cli, "--db", path)["database"]["state"] == "broken"


def test_no_database_yet_is_only_absent(cli: Cli) -> None:
    result = cli("doctor")
    assert result.code == 0
    assert "crossbreed search" in result.out


def test_artefacts_that_cannot_be_reached_are_broken_and_begin_no_search(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"class": "nowherefs.NowhereFileSystem", "err": "Install nowherefs"}
    monkeypatch.setitem(known_implementations, "nowhere", missing)
    for place, words in (
        ("nowhere://bucket/x", "pip install nowherefs"),
        ("sftp://me:hunter2@host/x", "name a password"),
    ):
        monkeypatch.setenv("CROSSBREED_ARTEFACTS", place)
        found = checks(cli)["artefacts"]
        assert found["state"] == "broken"
        assert words in str(found["detail"])
        result = cli("search", write_study(tmp_path / "tiny.yaml"), "--executor", "inline")
        assert result.code == 2
        assert words in result.err
        assert "hunter2" not in result.err
    monkeypatch.setenv("CROSSBREED_ARTEFACTS", str(tmp_path / "there"))
    assert checks(cli)["artefacts"]["detail"] == str(tmp_path / "there")
    assert not (tmp_path / "there").exists()
