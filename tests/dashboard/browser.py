"""A real server and a real browser: the dashboard as its users start it, and Chromium to look at it with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from crossbreed.dashboard.launch import SERVER, command

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
"""Where screenshots are kept to be looked at; git ignores it."""

PATIENCE_S = 120
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@dataclass(frozen=True)
class Server:
    """A running dashboard: where it is, its process, and what it printed so far."""

    address: str
    pid: int
    log: Path

    def url(self, page: str = "", **parameters: object) -> str:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"{self.address}/{page}{query}"

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])


@contextmanager
def serving(url: str, folder: Path) -> Iterator[Server]:
    """``python -m crossbreed.dashboard`` over the database at ``url``, until the block ends.

    The server picks its own free port and prints it, so no two servers can race for one.
    """
    with _started(["crossbreed.dashboard", "--no-browser"], folder, {"CROSSBREED_DB": url}) as running:
        yield running


@contextmanager
def serving_app(app: Path, folder: Path) -> Iterator[Server]:
    """Another Streamlit app, started with the settings of the dashboard."""
    line = command(browser=False)[2:]
    line[line.index(str(SERVER))] = str(app)
    with _started(line, folder, {}) as running:
        yield running


@contextmanager
def _started(module: list[str], folder: Path, variables: dict[str, str]) -> Iterator[Server]:
    log = folder / f"{module[0]}.log"
    environment = os.environ | variables | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with log.open("w") as output:
        starter = subprocess.Popen(
            [sys.executable, "-m", *module],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        address = _printed_address(starter, log)
        yield Server(address, starter.pid, log)
    finally:
        starter.terminate()
        starter.wait(30)


def _printed_address(starter: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        if found is not None and _healthy(found[0]):
            return found[0]
        if starter.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"the dashboard does not start:\n{log.read_text()}")


def _healthy(address: str) -> bool:
    try:
        with urlopen(f"{address}/_stcore/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def chromium() -> str:
    """The browser of CHROMIUM, or one on PATH. Raises RuntimeError naming the package."""
    asked = os.environ.get("CHROMIUM")
    names = [asked] if asked else ["chromium", "chromium-browser", "google-chrome"]
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    raise RuntimeError(
        f"no browser: {' and '.join(names)} not found; install the package chromium, or set CHROMIUM."
    )


class Chromium:
    """A headless browser. Pages share a profile, and with it the cache of the app's own files."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.profile = self._new_profile()

    @contextmanager
    def open(
        self, *, width: int = 1280, height: int = 900, dark: bool = False, fresh: bool = False
    ) -> Iterator[Page]:
        """A new page, checked for errors of its scripts at the end; ``fresh`` in a profile that knows nothing."""
        context = self._new_profile() if fresh else self.profile
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if dark else "light")
        failures: list[str] = []
        page.on("pageerror", lambda error: failures.append(str(error)))
        try:
            yield page
        finally:
            page.close()
        assert not failures, failures

    def _new_profile(self) -> BrowserContext:
        context = self.browser.new_context()
        context.set_default_timeout(1000 * PATIENCE_S / 4)
        return context


@contextmanager
def browsing() -> Iterator[Chromium]:
    """Chromium, until the block ends; expectations wait as long as a busy machine may need."""
    expect.set_options(timeout=1000 * PATIENCE_S // 4)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield Chromium(browser)
        finally:
            browser.close()


def settled(page: Page) -> None:
    """Wait until the app has run and shows no exception."""
    expect(page.get_by_test_id("stAppViewContainer")).to_be_visible()
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_attached()
    expect(page.get_by_test_id("stException")).to_have_count(0)


def still(element: Locator) -> None:
    """Wait until an element that opens or moves has kept its place and size for a while."""
    before = None
    while (now := element.bounding_box()) is None or now != before:
        before = now
        element.page.wait_for_timeout(300)


def visit(page: Page, url: str) -> None:
    page.goto(url)
    settled(page)


def drawn(page: Page, key: str, having: str = "") -> list[dict]:
    """The traces of a chart as the browser has them, once one of them has the name ``having``."""
    # A chart whose data has changed is made anew: the element is there before its traces are.
    found = page.wait_for_function(
        """([selector, having]) => {
            const data = [...document.querySelectorAll(selector)].at(-1)?.data;
            return (having ? data?.some(t => t.name === having) : data) && data.map(t => ({
                x: Array.from(t.x || []), y: Array.from(t.y || []), name: t.name,
                z: (t.z || []).map(r => Array.from(r)), mode: t.mode, customdata: t.customdata || []}))}""",
        arg=[f".st-key-{key} .js-plotly-plot", having],
    )
    return list(found.json_value())


def markers(page: Page) -> Locator:
    """Candidates' markers: the drawn points of the chart but the ring and the legend."""
    return page.locator(".scatterlayer .points path.point")


def marker_at(page: Page, number: int) -> tuple[float, float]:
    """Where on the page the chart drew a candidate's marker, found by its position among the traces, in pixels."""
    expect(markers(page).first).to_be_visible()
    place = page.locator(".js-plotly-plot").first.evaluate(
        """(plot, number) => {
            for (const [at, trace] of plot.data.entries()) {
                const point = (trace.customdata || []).findIndex(d => d[0] === number);
                if (point < 0) continue;
                const group = plot.querySelectorAll('.scatterlayer .trace')[
                    plot.calcdata.filter(c => c[0].trace.visible === true)
                        .findIndex(c => c[0].trace.index === at)];
                const box = group.querySelectorAll('.points path.point')[point].getBoundingClientRect();
                return [box.x + box.width / 2, box.y + box.height / 2];
            }
            return null;
        }""",
        number,
    )
    assert place is not None, f"no marker of candidate {number}"
    return place[0], place[1]


def click_candidate(page: Page, number: int) -> None:
    """Click with the mouse where the chart drew a candidate's marker."""
    place = marker_at(page, number)
    page.mouse.move(*place)
    page.mouse.click(*place)


def metric(page: Page, label: str) -> Locator:
    return page.get_by_test_id("stMetric").filter(has=page.get_by_text(label, exact=True))


def picture(page: Page, name: str) -> None:
    """Keep a screenshot of the whole page."""
    ARTEFACTS.mkdir(exist_ok=True)
    main = page.get_by_test_id("stMain")
    height = main.evaluate("e => e.scrollHeight")
    size = page.viewport_size or {"width": 1280, "height": 900}
    page.set_viewport_size({"width": size["width"], "height": max(size["height"], height + 4)})
    page.wait_for_timeout(300)
    page.screenshot(path=ARTEFACTS / f"{name}.png")
    page.set_viewport_size(size)
