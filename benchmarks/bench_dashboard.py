"""The dashboard over a large study, in a real browser: first paint of each page, and answers to what people do.

    python benchmarks/bench_dashboard.py [--trials 10000] [--points 200] [--repeats 7] [--tabs 5] [--writing] [--db FILE]

A study of so many candidates with one run each, its curve of so many points; made once and kept where --db says. Chromium
(CHROMIUM, or one on PATH) opens each page in a fresh tab until what it is about is drawn, then clicks a marker, moves a switch,
chooses a candidate; --tabs keeps that many more pages of the study open meanwhile, --writing lets another process add runs.
Printed: the median and the slowest of the repeats. Aims: a first paint under 2 s, any interaction under 1 s, at the median.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_storage import SPEC, fill

from crossbreed.storage import Repository
from tests.dashboard.browser import Chromium, Server, browsing, serving

STUDY = "large"
AIMS = {"paint": 2.0, "act": 1.0}
AT_ONCE = 100


def make(path: Path, trials: int, points: int) -> None:
    """The study, as far as it is not there."""
    with Repository.open(str(path)) as repository:
        study = repository.find_study(STUDY) or repository.create_study(
            STUDY, {**SPEC, "search": {"trials": trials}}
        )
        repository.fix_reference_point(study.id, {"score": 0.0, "decode_tokens_per_s": 0.0})
        done = repository.stamp(study.id)[0]
        if done < trials:
            print(f"writing {trials - done} candidates of {points} points ...", flush=True)
            fill(repository, study.id, done, trials, points, AT_ONCE)


def write(path: Path, points: int) -> None:
    """Add a run a second, as a search does, until stopped."""
    with Repository.open(str(path)) as repository:
        study = repository.open_study(STUDY)
        while True:
            first = repository.stamp(study.id)[0]
            fill(repository, study.id, first, first + 1, points, 1, together=False)
            time.sleep(1)


@contextmanager
def writing(path: Path, points: int) -> Iterator[None]:
    line = [sys.executable, __file__, "--db", str(path), "--points", str(points), "--write"]
    process = subprocess.Popen(line)
    try:
        yield
    finally:
        process.kill()
        process.wait()


PAINTED: dict[str, Callable[[Page], object]] = {
    "": lambda page: expect(page.get_by_role("heading", name=STUDY)).to_be_visible(),
    "front": lambda page: expect(page.locator(".scatterlayer .points path.point").first).to_be_visible(),
    "candidates": lambda page: expect(
        page.locator(".st-key-candidates-table").get_by_test_id("stDataFrame")
    ).to_be_visible(),
    "candidate": lambda page: expect(page.locator(".st-key-curves .js-plotly-plot")).to_be_visible(),
    "compare": lambda page: expect(page.locator(".st-key-bars .js-plotly-plot")).to_be_visible(),
    "budgets": lambda page: expect(page.locator(".st-key-residuals .js-plotly-plot")).to_be_visible(),
    "health": lambda page: expect(page.get_by_text("Software of the latest runs")).to_be_visible(),
}
"""Page -> what stands there once it is painted."""


def paint(browser: Chromium, server: Server, page_name: str) -> float:
    """Seconds from asking for a page to its picture, the app's own files being cached as for anybody who was here before."""
    with browser.open() as page:
        began = time.perf_counter()
        page.goto(server.url(page_name, study=STUDY))
        PAINTED[page_name](page)
        return time.perf_counter() - began


def click_marker(page: Page) -> float:
    markers = page.locator(".scatterlayer .trace .points path.point")
    chosen = page.locator(".st-key-details h4")
    before = chosen.inner_text() if chosen.count() else ""
    place = markers.nth(click_marker.next % markers.count()).bounding_box()  # type: ignore[attr-defined]
    click_marker.next += 7  # type: ignore[attr-defined]
    assert place is not None
    began = time.perf_counter()
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    if before:
        expect(chosen).not_to_have_text(before)
    else:
        expect(chosen).to_be_visible()
    return time.perf_counter() - began


click_marker.next = 3  # type: ignore[attr-defined]


def flip(page: Page) -> float:
    address = page.url
    began = time.perf_counter()
    page.get_by_text("Log axis").click()
    page.wait_for_function("before => location.href !== before", arg=address)
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_attached()
    return time.perf_counter() - began


def turn(page: Page) -> float:
    """From the front to the table of all candidates and back."""
    began = time.perf_counter()
    page.get_by_role("link", name="Candidates").click()
    expect(
        page.get_by_text("Tick a row to choose its candidate.").or_(page.get_by_text("Open candidate"))
    ).to_be_visible()
    expect(page.locator(".st-key-candidates-table").get_by_test_id("stDataFrame")).to_be_visible()
    spent = time.perf_counter() - began
    page.get_by_role("link", name="Front").click()
    PAINTED["front"](page)
    return spent


def say(what: str, seconds: list[float], aim: float) -> None:
    median = statistics.median(seconds)
    every = " ".join(f"{s:.2f}" for s in seconds)
    print(
        f"{what:34} median {median:5.2f} s = {median / aim:.2f} of the aim of {aim:g} s   {every}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tabs", type=int, default=0)
    parser.add_argument("--writing", action="store_true")
    parser.add_argument("--db", type=Path, default=None)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.db, arguments.points)
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        path = arguments.db or folder / "large.db"
        make(path, arguments.trials, arguments.points)
        server = held.enter_context(serving(str(path), folder))
        browser = held.enter_context(browsing())
        began = time.perf_counter()
        paint(browser, server, "front")
        print(f"the very first page, nothing kept: {time.perf_counter() - began:.2f} s", flush=True)
        for place in range(arguments.tabs):
            page = held.enter_context(browser.open())
            page.goto(server.url(list(PAINTED)[place % 4], study=STUDY))
        if arguments.writing:
            held.enter_context(writing(path, arguments.points))
        print(
            f"{arguments.trials} candidates x {arguments.points} points, {arguments.tabs} more tabs, writing: {arguments.writing}"
        )
        for name in PAINTED:
            say(
                f"first paint of {name or 'studies'}",
                [paint(browser, server, name) for _ in range(arguments.repeats)],
                AIMS["paint"],
            )
        with browser.open() as page:
            page.goto(server.url("front", study=STUDY))
            PAINTED["front"](page)
            for what, act in (
                ("click a marker", click_marker),
                ("move a switch", flip),
                ("turn to the table", turn),
            ):
                act(page)
                say(what, [act(page) for _ in range(arguments.repeats)], AIMS["act"])


if __name__ == "__main__":
    main()
