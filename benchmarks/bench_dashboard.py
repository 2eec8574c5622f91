"""The dashboard over a large study, in a real browser: first paint of each page, and answers to what people do.

    python benchmarks/bench_dashboard.py [--trials 10000] [--points 200] [--repeats 5] [--db FILE] [--alone]

A study of so many candidates with one run each, its curve of so many points, in SQLite; made once and kept where --db says.
Chromium (CHROMIUM, or one on PATH) first has the dashboard to itself; then, unless --alone, everything is measured again with
five more tabs open on its pages while a process of its own writes records as workers stream them, about ten a second.

First paint: seconds from asking for a page's address, in a browser context that knows nothing (nothing cached), until what the
page is about - its chart, or its table - is visible. An interaction: seconds from the click or key until what it asks for is
visible. Printed are the median and every repeat. Beside them, page by page in turn, the floor: a Streamlit app of a single
empty Plotly chart, of which no dashboard made with Streamlit can be faster. Aims: a first paint under 2 s, any interaction
under 1 s, at the median.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

sys.path.insert(0, str(Path(__file__).parents[1]))

from crossbreed.core.lab.records import CurvePoint
from crossbreed.storage import Repository
from tests.dashboard.browser import Chromium, Server, browsing, serving, serving_app
from tests.dashboard.large import PAINTED, large_study, plot
from tests.dashboard.material import DEVICE, STUDY, measured

AIMS = {"paint": 2.0, "act": 1.0}
TABS = ("", "front", "candidates", "candidate", "compare")
CHART = ".st-key-front-chart"
APART_PX = 40
PAUSE_S = 0.1
"""Between two records of the writer."""
FLOOR = "import plotly.graph_objects as go\nimport streamlit as st\nst.plotly_chart(go.Figure())\n"


def write(path: Path) -> None:
    """Add runs of a copy of the first candidate, record by record, until stopped."""
    with Repository.open(str(path)) as repository:
        study = repository.open_study(STUDY)
        first = repository.trial(study.id, 0)
        for number in count():
            trial = repository.add_trial(
                study.id, hash=first.hash, genome=first.genome, family=f"family {number % 12}", origin="sampler",
                certificate=first.certificate, ledger=first.ledger,
            )  # fmt: skip
            run = repository.add_run(trial.id, 0, recipe={"lr": 1e-3}, identities={"mixer:attention": "1"})
            lease = repository.lease_run(run.id, "bench", seconds=600)
            assert lease is not None
            repository.record_started(run.id, lease, {"device": "bench"})
            for step in range(0, 200, 10):
                time.sleep(PAUSE_S)
                repository.record_curve(
                    run.id,
                    lease,
                    [CurvePoint(s, 1024 * s, 3 / s, 1e-3, 1.0) for s in range(step + 1, step + 11)],
                )
            score = (number * 7919 % 10007) / 10007
            repository.record_evaluation(
                run.id, lease, "own", tokens=32, metrics={}, score=score, rows=512, ledger=first.ledger
            )
            speeds = [measured(phase, 200 + number % 1000, DEVICE) for phase in ("decode", "prefill")]
            repository.record_profile(run.id, lease, "own", speeds)
            repository.record_finished(run.id, lease, "done")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, __file__, "--db", str(path), "--write"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def paint(browser: Chromium, url: str, painted: Callable[[Page], object]) -> float:
    with browser.open(fresh=True) as page:
        began = time.perf_counter()
        page.goto(url)
        painted(page)
        return time.perf_counter() - began


class Visitor:
    """Somebody on the page of the front; every method does one thing and waits for the answer."""

    def __init__(self, page: Page) -> None:
        self.page, self.turn, self.clicked = page, 0, (0.0, 0.0)

    def click_a_marker(self) -> None:
        markers = self.page.locator(f"{CHART} .scatterlayer .trace .points path.point")
        chosen = self.page.locator(".st-key-details h4")
        before = chosen.inner_text() if chosen.count() else ""
        self.clicked = place = self._away(markers)
        self.page.mouse.click(*place)
        if before:
            expect(chosen).not_to_have_text(before)
        else:
            expect(chosen).to_be_visible()

    def _away(self, markers: Locator) -> tuple[float, float]:
        """Where another marker is that does not lie on the one clicked before."""
        while True:
            self.turn += 7
            box = markers.nth(self.turn % markers.count()).bounding_box()
            assert box is not None
            place = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            if math.dist(place, self.clicked) > APART_PX:
                return place

    def change_an_axis(self) -> None:
        across = self.page.get_by_role("combobox", name="Across")
        wanted = "parameters" if self.turn % 2 else "prefill"
        self.turn += 1
        across.fill(wanted)
        across.press("Enter")
        title = self.page.locator(f"{CHART} .g-xtitle").first
        expect(title).to_have_text(re.compile(wanted))

    def move_a_switch(self) -> None:
        if not self.page.get_by_text("Log axis across").is_visible():
            self.page.get_by_text("How it is drawn").click()
        ticks = self.page.locator(f"{CHART} .xaxislayer-above").first
        before = ticks.text_content() or ""
        self.page.get_by_text("Log axis across").click()
        expect(ticks).not_to_have_text(before)

    def choose_a_candidate(self) -> None:
        self.turn += 1
        chooser = self.page.get_by_role("combobox", name="Candidate", exact=True)
        chooser.fill(str(20 + self.turn))
        chooser.press("Enter")
        expect(self.page.locator(".st-key-details h4")).to_have_text(
            re.compile(rf"Candidate {20 + self.turn}\b")
        )

    def open_the_table(self) -> None:
        self.page.get_by_role("link", name="Candidates").click()
        PAINTED["candidates"](self.page)

    def open_the_front(self) -> None:
        self.page.get_by_role("link", name="Front").click()
        PAINTED["front"](self.page)


def say(what: str, seconds: list[float], aim: float) -> None:
    median = statistics.median(seconds)
    every = " ".join(f"{s:.2f}" for s in seconds)
    print(
        f"  {what:34} median {median:5.2f} s = {median / aim:.2f} of the aim of {aim:g} s   {every}",
        flush=True,
    )


def measure(browser: Chromium, server: Server, floor: Server, repeats: int) -> None:
    """First paints, the floor's among them in turn, then interactions."""
    targets = {"the floor: an empty chart": (floor.url(), plot)}
    for name, painted in PAINTED.items():
        targets[f"first paint of {name or 'studies'}"] = (server.url(name, study=STUDY), painted)
    seconds: dict[str, list[float]] = {what: [] for what in targets}
    for _ in range(repeats):
        for what, (url, painted) in targets.items():
            seconds[what].append(paint(browser, url, painted))
    for what, found in seconds.items():
        say(what, found, AIMS["paint"])
    with browser.open() as page:
        page.goto(server.url("front", study=STUDY))
        PAINTED["front"](page)
        visitor = Visitor(page)
        acts: dict[str, list[float]] = {}
        for act in ("click_a_marker", "change_an_axis", "move_a_switch", "choose_a_candidate"):
            getattr(visitor, act)()
            acts[act] = [timed(getattr(visitor, act)) for _ in range(repeats)]
        for _ in range(repeats):
            for act in ("open_the_table", "open_the_front"):
                acts.setdefault(act, []).append(timed(getattr(visitor, act)))
    for act, found in acts.items():
        say(act.replace("_", " "), found, AIMS["act"])


def timed(act: Callable[[], None]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def machine() -> str:
    model = (
        re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        if os.path.exists("/proc/cpuinfo")
        else None
    )
    return f"{model[1] if model else platform.processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def load() -> str:
    return f"load {' '.join(f'{x:.1f}' for x in os.getloadavg())}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="no other tabs, nobody writing")
    parser.add_argument("--db", type=Path, default=None)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(given.db)
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        path = given.db or folder / "large.db"
        if not path.exists():
            large_study(path, given.trials, given.points)
        app = folder / "floor.py"
        app.write_text(FLOOR)
        print(
            f"{machine()}, {load()}; {given.trials} candidates x {given.points} points, {path.stat().st_size >> 20} MiB"
        )
        floor = held.enter_context(serving_app(app, folder))
        began = time.perf_counter()
        server = held.enter_context(serving(str(path), folder))
        browser = held.enter_context(browsing())
        paint(browser, server.url("front", study=STUDY), PAINTED["front"])
        print(f"from starting the server to the first page: {time.perf_counter() - began:.2f} s", flush=True)
        print("alone:")
        measure(browser, server, floor, given.repeats)
        if given.alone:
            return
        for name in TABS:
            page = held.enter_context(browser.open())
            page.goto(server.url(name, study=STUDY))
            PAINTED[name](page)
        held.enter_context(writing(path))
        print(f"with {len(TABS)} more tabs open and records written every {PAUSE_S:g} s ({load()}):")
        measure(browser, server, floor, given.repeats)


if __name__ == "__main__":
    main()
