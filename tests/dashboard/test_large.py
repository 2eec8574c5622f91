"""Studies of tens of thousands of candidates: what is sent to a browser stays small, and says what it leaves out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocket, expect

from crossbreed.dashboard.queries import CURVE_POINTS
from crossbreed.figures.front import FEW_DOMINATED
from crossbreed.storage import Repository
from tests.dashboard.browser import Chromium, Server, serving, settled
from tests.dashboard.large import PAINTED, large_study
from tests.dashboard.material import STUDY

TRIALS, STEPS = 50_000, 200
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.db"
    large_study(path, TRIALS, STEPS)
    return path


@pytest.fixture(scope="module")
def large_server(large: Path, browser: Chromium) -> Iterator[Server]:
    with serving(str(large), large.parent) as running:
        with browser.open() as page:
            page.goto(running.url("front", study=STUDY))
            expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=300_000)
        yield running


def received(page: Page) -> list[int]:
    """Bytes of every message that the page gets from now on."""
    sizes: list[int] = []

    def watch(socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: sizes.append(len(payload)))

    page.on("websocket", watch)
    return sizes


@pytest.mark.slow
def test_curves_of_a_large_study_are_thinned_in_the_database(large: Path) -> None:
    with Repository.open(str(large), read_only=True) as repository:
        runs = [seed.run_id for c in repository.candidates(1, numbers=range(20, 26)) for seed in c.seeds]
        assert [len(points) for points in repository.curves(runs).values()] == [STEPS] * 6
        thinned = repository.curves(runs, at_most=50)
        assert all(50 <= len(points) <= 51 for points in thinned.values())
        assert CURVE_POINTS <= 300


@pytest.mark.slow
def test_no_page_of_a_large_study_sends_more_than_two_megabytes(
    large_server: Server, browser: Chromium
) -> None:
    for name in PAINTED:
        with browser.open() as page:
            sizes = received(page)
            page.goto(large_server.url(name, study=STUDY))
            PAINTED[name](page)
            settled(page)
            assert 0 < sum(sizes) < 2 * MEGABYTE, name


@pytest.mark.slow
def test_a_large_study_draws_its_front_and_says_how_many_candidates_it_hides(
    large_server: Server, browser: Chromium
) -> None:
    with browser.open() as page:
        page.goto(large_server.url("front", study=STUDY))
        expect(page.locator(".scatterlayer .points path.point").first).to_be_visible()
        drawn = page.locator(".js-plotly-plot").first.evaluate(
            "plot => plot.data.filter(t => t.customdata).map(t => t.customdata.length).reduce((a, b) => a + b)"
        )
        assert FEW_DOMINATED < drawn < FEW_DOMINATED + 200
        expect(page.get_by_text(re.compile(f"^{drawn} candidates shown"))).to_be_visible()
        said = page.get_by_text(re.compile(r"not shown: .*dominated and far from the front")).inner_text()
        hidden = re.search(r"(\d+) dominated and far", said)
        assert hidden is not None
        assert TRIALS - 50 < drawn + int(hidden[1]) <= TRIALS


@pytest.mark.slow
def test_any_candidate_of_a_large_study_is_chosen_by_typing_its_number(
    large_server: Server, browser: Chromium
) -> None:
    with browser.open() as page:
        page.goto(large_server.url("candidate", study=STUDY))
        chooser = page.get_by_role("combobox", name="Candidate")
        expect(chooser).to_be_visible()
        settled(page)
        chooser.fill("43210")
        chooser.press("Enter")
        expect(page.get_by_role("heading", name="Candidate 43210")).to_be_visible()
