"""The pages behind the front in a real browser: Compare, Routers, Budgets, Health, and what they show is what is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import expect

from crossbreed.core.search.pairs import compare
from crossbreed.core.search.study import Study
from crossbreed.storage import Repository
from tests.dashboard.analysed import EXPERTS, GATED, READING, store_analytics
from tests.dashboard.browser import Chromium, Server, drawn, picture, serving, visit
from tests.dashboard.material import HOSTILE, STUDY, store


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "results.db"
    store(path)
    store_analytics(path)
    return path


@pytest.fixture(scope="module")
def server(database: Path) -> Iterator[Server]:
    with serving(str(database), database.parent) as running:
        yield running


def test_candidates_are_compared_on_the_seeds_they_share(
    server: Server, browser: Chromium, database: Path
) -> None:
    with Study.open(str(database)) as study:
        found = {c.row.number: c for c in study.read_candidates()}
        objectives = study.objectives.over([c.row for c in found.values()])
    with browser.open() as page:
        visit(page, server.url("compare", study=STUDY, **{"with": "0,1"}))
        cells = page.get_by_test_id("stDataFrame").locator("td")
        expect(cells.filter(has_text=re.compile(r"^0\.0\.0 mixer$"))).to_have_count(1)
        expect(cells.filter(has_text=re.compile("^mamba2$"))).to_have_count(1)
        (pair,) = [c for c in compare([found[0], found[1]], objectives) if c.objective == "score"]
        assert pair.paired is not None
        (trace,) = [t for t in drawn(page, "pairs-score") if t["mode"] == "markers"]
        assert trace["x"][0] == pytest.approx(pair.paired.mean)
        (bars,) = drawn(page, "bars-score")
        assert bars["x"] == pytest.approx([found[0].means["score"], found[1].means["score"]])
        assert len([t for t in drawn(page, "overlaid") if t["mode"] == "lines"]) == 8
        picture(page, "dashboard-compare-light-1280")
        page.locator(".st-key-trials-chooser").get_by_role("combobox").click()
        page.get_by_role("option", name=re.compile("^4 ")).click()
        page.keyboard.press("Escape")
        expect(page).to_have_url(re.compile("with=0%2C1%2C4"))
        expect(page.locator(".st-key-pairs-score .js-plotly-plot").last).to_contain_text("#1 − #4")
        visit(page, server.url("compare", study=STUDY, **{"with": "0,1,3"}))
        expect(page.get_by_text("#0 and #3 share no seed")).to_have_count(1)
        # A candidate that was never trained stays in every chart, and the chart says why it shows nothing.
        visit(page, server.url("compare", study=STUDY, **{"with": "0,6"}))
        expect(page.locator(".st-key-bars-score .js-plotly-plot").last).to_contain_text("not applicable")
        expect(page.get_by_text("No run has reported a loss: candidate #6.")).to_be_visible()
        visit(page, server.url("compare", study=STUDY, **{"with": "0,77"}))
        expect(page.get_by_text("Not in this study: candidate 77.")).to_be_visible()
        expect(page.get_by_text("Choose 2 to 6 candidates above.")).to_be_visible()


def test_a_gate_is_shown_over_the_words_it_decides(server: Server, browser: Chromium, database: Path) -> None:
    with Repository.open(str(database), read_only=True) as repository:
        study = repository.open_study(STUDY)
        kinds = repository.analytics(repository.trial_detail(study.id, GATED).runs[0].run.id)
    decisions, text = kinds["decisions"].payload, kinds["text"].payload
    with browser.open(dark=True, width=1920) as page:
        visit(page, server.url("routers", study=STUDY, trial=GATED))
        site = decisions["sites"][0]
        expect(page.get_by_test_id("stMetric").first).to_contain_text(f"{1 - site['shares'][0]:.2%}")
        (words,) = drawn(page, "text")
        chosen = [choice for row in words["z"] for choice in row]
        assert chosen == text["sites"][0]["choice"]
        (places,) = drawn(page, "positions")
        assert places["z"][0] == pytest.approx([1 - shares[0] for shares in site["positions"]["shares"]])
        expect(page.get_by_text("Full forward against one-token decode")).to_be_visible()
        picture(page, "dashboard-routers-dark-1920")


def test_modes_experts_and_a_study_nobody_looked_at(
    server: Server, browser: Chromium, database: Path
) -> None:
    with browser.open() as page:
        visit(page, server.url("routers", study=STUDY, trial=READING))
        assert {t["name"] for t in drawn(page, "timeline")} == {"mamba2", "attention"}
        assert {"mamba2 alone", "mamba2 → attention"} <= {t["name"] for t in drawn(page, "switches")}
        picture(page, "dashboard-modes-light-1280")
        visit(page, server.url("routers", study=STUDY, trial=EXPERTS))
        expect(page.get_by_text("Nothing is routed here")).to_be_visible()
        (load,) = drawn(page, "experts")
        assert len(load["z"]) == 2  # Depths of the recurrent stage.
        with Repository.open(str(database)) as repository:
            repository.create_study("fresh", repository.open_study(STUDY).spec)
        visit(page, server.url("routers", study="fresh"))
        expect(page.get_by_text("crossbreed routers fresh/NUMBER/SEED")).to_be_visible()


def test_residuals_stand_in_tolerances_and_what_is_off_says_why(
    server: Server, browser: Chromium, database: Path
) -> None:
    with Study.open(str(database), STUDY) as study:
        rows = {c.row.number: c.row for c in study.read_candidates()}
    flops = next(q for q in rows[2].certificate["quantities"] if q["quantity"] == "training_flops_per_token")
    with browser.open(width=1920) as page:
        visit(page, server.url("budgets", study=STUDY))
        traces = {
            t["name"]: t
            for t in drawn(page, "residuals")
            if t["name"] in ("feasible", "infeasible", "off budget")
        }
        assert set(traces) == {"feasible", "infeasible", "off budget"}
        assert any(
            x == pytest.approx(flops["residual"] / flops["tolerance"]) for x in traces["feasible"]["x"]
        )
        assert max(traces["infeasible"]["x"]) == 4.0
        page.get_by_text("Why, in full").click()
        expect(
            page.get_by_text(re.compile("cannot rise without training_flops_per_token")).last
        ).to_be_visible()
        picture(page, "dashboard-budgets-light-1920")


def test_failures_are_counted_by_cause_with_their_traceback(server: Server, browser: Chromium) -> None:
    with browser.open(dark=True) as page:
        visit(page, server.url("health", study=STUDY))
        expect(page.get_by_text("Nobody drives this study now.")).to_be_visible()
        page.get_by_text(f"Traceback of {STUDY}/7/0").click()
        expect(page.get_by_text(f"ValueError: {HOSTILE}").last).to_be_visible()
        assert page.evaluate("window.hacked") is None
        picture(page, "dashboard-health-dark-1280")


def test_a_study_is_saved_as_a_page_that_needs_no_server(
    server: Server, browser: Chromium, tmp_path: Path
) -> None:
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY))
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Report").click()
        saved = tmp_path / "report.html"
        waiting.value.save_as(saved)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(saved.as_uri())
        expect(page.get_by_role("heading", name=STUDY)).to_be_visible()
        expect(page.locator("#front .scatterlayer .points path.point").first).to_be_attached()
        assert requests == [saved.as_uri()]
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        assert page.evaluate("window.hacked") is None
        page.screenshot(path=tmp_path / "report.png", full_page=True)


def test_tables_are_saved_as_the_database_has_them(
    server: Server, browser: Chromium, database: Path, tmp_path: Path
) -> None:
    with Study.open(str(database), STUDY) as study:
        expected = study.candidates()
    readers = {"CSV": pd.read_csv, "Parquet": pd.read_parquet, "JSON": pd.read_json}
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY))
        for kind, read in readers.items():
            with page.expect_download() as waiting:
                page.locator(f".st-key-save-{kind} button").click()
            saved = tmp_path / waiting.value.suggested_filename
            waiting.value.save_as(saved)
            assert saved.name == f"{STUDY}.{kind.lower()}"
            found = read(saved)
            assert found["hash"].tolist() == expected["hash"].tolist()
            assert found["score"].tolist() == pytest.approx(expected["score"].tolist(), nan_ok=True)
        with page.expect_download() as waiting:
            page.locator(".st-key-front-chart").hover()
            page.locator(".st-key-front-chart .modebar-btn[data-title^='Download']").click()
        assert waiting.value.suggested_filename == "front.svg"
        waiting.value.save_as(tmp_path / "front.svg")
        assert "gated_deltanet" in (tmp_path / "front.svg").read_text()


def test_the_server_never_failed(server: Server) -> None:
    """Last in the file: nothing that the tests above did made the server print a traceback."""
    assert "Traceback" not in server.log.read_text()
