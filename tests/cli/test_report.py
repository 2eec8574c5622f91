"""``crossbreed report``: a study as a page, as a table and as a picture."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from crossbreed.core.search.study import Study
from crossbreed.figures.words import short_name
from tests.cli.conftest import Cli
from tests.dashboard.browser import Chromium, chromium
from tests.dashboard.material import HOSTILE, STUDY, store


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "results.db"
    store(path)
    return path


def test_a_page_holds_the_study_loads_nothing_and_shows_names_as_text(
    cli: Cli, database: Path, tmp_path: Path
) -> None:
    out = tmp_path / "study.html"
    result = cli("report", "--db", database, "--out", out)
    assert result.code == 0, result.err
    assert str(out) in result.err
    page = out.read_text()
    assert f"<h1>{STUDY}</h1>" in page
    assert HOSTILE not in page
    assert HOSTILE.split("onerror")[0].replace("<", "&lt;") in page
    # Plotly itself is inside; nothing is fetched.
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    with Study.open(str(database)) as study:
        front = study.front()
        infeasible = next(c for c in study.read_candidates() if c.row.state == "infeasible")
        members = [c.row for c in study.read_candidates() if c.on_front]
    for family in front["family"]:
        assert f"<td>{family}</td>" in page
    for row in members:
        for q in (row.certificate or {})["quantities"]:
            residual = re.escape(f"{q['residual']:+.2%} ✓")
            line = rf"<tr><td>{row.number}</td><td>{short_name(q['quantity'])}</td>.*{residual}"
            assert re.search(line, page), line
    assert str(infeasible.row.cause)[:60] in page


def test_a_report_on_paper_loses_no_column(
    cli: Cli, database: Path, tmp_path: Path, browser: Chromium
) -> None:
    out = tmp_path / "study.html"
    assert cli("report", "--db", database, "--out", out).code == 0
    with browser.open(width=720) as page:
        page.emulate_media(media="print")
        page.goto(out.as_uri())
        assert page.locator("table").count() >= 4
        for table in page.locator("table").all():
            box = table.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 720


def test_tables_hold_what_the_study_says(cli: Cli, database: Path, tmp_path: Path) -> None:
    with Study.open(str(database)) as study:
        expected = study.candidates()
    read = {
        ".csv": pd.read_csv,
        ".parquet": pd.read_parquet,
        ".json": lambda p: pd.DataFrame(json.loads(p.read_text())),
    }
    for suffix, reader in read.items():
        out = tmp_path / f"candidates{suffix}"
        assert cli("report", STUDY, "--db", database, "--out", out).code == 0
        found = reader(out)
        assert list(found.columns) == list(expected.columns)
        assert found["hash"].tolist() == expected["hash"].tolist()
        assert found["score"].tolist() == pytest.approx(expected["score"].tolist(), nan_ok=True)


@pytest.mark.parametrize(
    ("out", "rule"),
    [
        ("study.pdf", "ends in '.pdf'; it must end in one of .html, .csv"),
        ("there.csv", "is there already; choose another name, or replace it with --force"),
        ("nowhere/study.html", "lies in a folder that does not exist"),
    ],
)
def test_what_cannot_be_written_is_a_sentence(
    cli: Cli, database: Path, tmp_path: Path, out: str, rule: str
) -> None:
    (tmp_path / "there.csv").write_text("precious")
    result = cli("report", "--db", database, "--out", tmp_path / out)
    assert result.code == 2
    assert rule in result.err
    assert (tmp_path / "there.csv").read_text() == "precious"


@pytest.mark.slow
def test_the_front_is_drawn_as_a_picture(
    cli: Cli, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER_PATH", chromium())
    vector, bitmap = tmp_path / "front.svg", tmp_path / "front.png"
    for out in (vector, bitmap):
        result = cli("report", "--db", database, "--out", out)
        assert result.code == 0, result.err
    assert "gated_deltanet" in vector.read_text()
    assert bitmap.read_bytes().startswith(b"\x89PNG")
