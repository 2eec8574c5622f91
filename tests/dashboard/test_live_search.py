"""A real search, looked at in a real browser while it runs and on every page when it is done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from crossbreed.core.search.study import Study
from crossbreed.storage import Repository
from tests.cli.studies import write_study
from tests.dashboard.browser import Chromium, Server, drawn, picture, serving, visit
from tests.dashboard.large import PAINTED, plot

NAME, TRIALS = "live", 4
SEARCHED_MS = 240_000
"""Patience for what a search of seconds brings, on a machine that has other things to do."""


@pytest.mark.slow
def test_a_search_is_followed_to_its_end_and_every_page_shows_what_it_stored(
    tmp_path: Path, browser: Chromium
) -> None:
    database = tmp_path / "crossbreed.db"
    Repository.open(str(database)).close()
    study = write_study(
        tmp_path / "study.yaml",
        name=NAME,
        space={"routers": "all"},
        train={"tokens": 9_600},
        search={"trials": TRIALS, "seeds": 3, "forced_rates": []},
    )
    command = [
        sys.executable,
        "-m",
        "crossbreed",
        "search",
        str(study),
        "--db",
        str(database),
        "--workers",
        "1",
    ]
    environment = {k: v for k, v in os.environ.items() if k != "CROSSBREED_DB"}
    with serving(str(database), tmp_path) as server, browser.open() as page:
        visit(page, server.url())
        expect(page.get_by_text("This database holds no study yet.")).to_be_visible()
        page.evaluate("window.notReloaded = true")
        search = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            expect(page.get_by_role("heading", name=NAME)).to_be_visible(timeout=SEARCHED_MS)
            expect(page.get_by_text("running", exact=True).first).to_be_visible(timeout=SEARCHED_MS)
            expect(page.get_by_text("complete", exact=True).first).to_be_visible(timeout=SEARCHED_MS)
            printed, _ = search.communicate(timeout=SEARCHED_MS / 1000)
        finally:
            search.kill()
        assert search.returncode == 0, printed
        expect(page.get_by_text(f"{TRIALS} of {TRIALS} candidates drawn")).to_be_visible()
        assert page.evaluate("window.notReloaded") is True
        with Study.open(str(database), NAME) as found:
            candidates = {c.row.number: c for c in found.read_candidates()}
            routed = found.repository.analysed(found.row.id)
        visit(page, server.url("front", study=NAME))
        places = {
            data[0]: (x, y)
            for trace in drawn(page, "front-chart")
            for data, x, y in zip(trace["customdata"], trace["x"], trace["y"], strict=False)
        }
        assert places
        for number, place in places.items():
            means = candidates[number].means
            assert place == pytest.approx((means["decode_tokens_per_s"], means["score"]))
        assert routed
        for dark in (False, True):
            _every_page(browser, server, routed[0].number, dark=dark)
    assert "Traceback" not in server.log.read_text()


def _every_page(browser: Chromium, server: Server, routed: int, *, dark: bool) -> None:
    """Look at every page, and keep its picture."""
    with browser.open(dark=dark) as page:
        for name, painted in {**PAINTED, "routers": _decisions}.items():
            visit(page, server.url(name, study=NAME, **({"trial": routed} if name == "routers" else {})))
            painted(page)
            picture(page, f"live-{name or 'studies'}-{'dark' if dark else 'light'}-1280")


def _decisions(page: Page) -> None:
    expect(page.get_by_text("Decisions over the text")).to_be_visible()
    plot(page, ".st-key-text")
