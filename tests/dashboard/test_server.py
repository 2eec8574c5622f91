"""The server is ready before anybody visits it, without what only training needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
import streamlit as st
from sqlalchemy import event

from crossbreed.core.errors import StorageError
from crossbreed.dashboard import queries, server
from tests.dashboard.browser import Server
from tests.dashboard.material import store


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    store(tmp_path / "results.db")
    monkeypatch.setenv("CROSSBREED_DB", str(tmp_path / "results.db"))
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


def test_a_page_names_the_scripts_it_will_need_and_they_are_there(server: Server) -> None:
    for name, parts in {"front": 2, "candidates": 1}.items():
        with urlopen(server.url(name)) as answer:
            links = answer.headers["Link"].split(", ")
        assert len([link for link in links if "PlotlyChart" in link or "DataFrame" in link]) == parts
        for link in links:
            path, *rest = link.split("; ")
            assert rest == ["rel=modulepreload", "crossorigin"]
            with urlopen(f"{server.address}/{path.strip('<>').removeprefix('./')}") as script:
                assert "javascript" in script.headers["Content-Type"]
    with urlopen(f"{server.address}/_stcore/health") as answer:
        assert answer.headers["Link"] is None


def test_a_part_that_this_version_of_streamlit_does_not_have_is_not_named() -> None:
    assert server.modules("NoSuchPart") == ()
    assert server.link(["NoSuchPart"]) == ""


@pytest.mark.usefixtures("stored")
def test_the_newest_study_is_read_before_the_first_visit() -> None:
    server.warm()
    statements: list[str] = []
    counting = event.listens_for(queries.repository().database.engine, "before_cursor_execute")
    counting(lambda _c, _cursor, statement, *_: statements.append(statement))
    study = queries.studies()[0]
    assert queries.results(study, queries.stamp(study)).own
    assert not [s for s in statements if "FROM measurement" in s]


def test_a_database_that_is_not_there_yet_does_not_keep_the_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSBREED_DB", str(tmp_path / "missing.db"))
    server.warm()
    with pytest.raises(StorageError, match="is not there"):
        queries.repository()


def test_pages_are_shown_without_loading_what_trains_models() -> None:
    script = (
        "import sys\nfrom crossbreed.dashboard.server import PARTS\nfrom importlib import import_module\n"
        "for page in PARTS: import_module(f'crossbreed.dashboard.views.{page or \"studies\"}')\n"
        "print([m for m in ('torch', 'ray', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"
