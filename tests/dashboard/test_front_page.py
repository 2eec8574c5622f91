"""The page Front in a real browser: choosing with mouse and keyboard, fronts over one another, and keys that never mix."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from crossbreed.core.search.candidates import front_volume
from crossbreed.core.search.study import Study
from crossbreed.storage import Repository
from tests.dashboard.browser import Chromium, Server, drawn, marker_at, picture, serving, still, visit
from tests.dashboard.material import DEVICE, SKETCHES, STUDY, measured, store

TWIN, ELSEWHERE = "recall-twin", "recall-gpu"
GPU = "Some <b>GPU</b>"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, one that was judged and timed alike, and one timed on another device."""
    path = tmp_path_factory.mktemp("fronts") / "results.db"
    store(path, SKETCHES[:6])
    store(path, SKETCHES[1:5], TWIN)
    store(path, SKETCHES[:2], ELSEWHERE, GPU)
    with Repository.open(str(path)) as repository:
        # One candidate of the first study was timed on the other device, too.
        trial = repository.trial_detail(repository.open_study(STUDY).id, 0)
        for run in trial.runs:
            repository.record_profile(
                run.run.id, str(run.run.lease), "own", [measured("decode", 9000.0, GPU)]
            )
    return path


@pytest.fixture(scope="module")
def server(database: Path) -> Iterator[Server]:
    with serving(str(database), database.parent) as running:
        yield running


def shown(page: Page, having: str = "") -> dict[str, list[int | None]]:
    """Layer or family -> the numbers of its markers; None for those of another study. ``having``: see ``drawn``."""
    found: dict[str, list[int | None]] = {}
    for trace in drawn(page, "front-chart", having):
        if trace["customdata"]:
            found.setdefault(trace["name"], []).extend(data[0] for data in trace["customdata"])
    return found


def test_a_box_and_the_keyboard_choose_several_to_compare(
    server: Server, browser: Chromium, database: Path
) -> None:
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY))
        (left, top), (right, bottom) = marker_at(page, 2), marker_at(page, 0)
        page.locator(".js-plotly-plot").first.hover()
        page.locator(".modebar-btn[data-title='Box Select']").click()
        # Until the chart has taken it up, a drag zooms.
        expect(page.locator(".modebar-btn[data-title='Box Select'].active")).to_be_attached()
        page.mouse.move(left - 15, top - 8)
        page.mouse.down()
        page.mouse.move(right + 15, bottom + 15, steps=4)
        page.mouse.up()
        expect(page).to_have_url(re.compile("with=0%2C2(&|$)"))
        rings = drawn(page, "front-chart", having="chosen together")
        (ring,) = [t for t in rings if t["name"] == "chosen together"]
        assert len(ring["x"]) == 2
        chooser = page.get_by_role("combobox", name="Candidates")
        chooser.focus()
        page.keyboard.type("1 ★")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("with=0%2C2%2C1(&|$)"))
        page.keyboard.press("Escape")
        link = page.url
        picture(page, "dashboard-together-light-1280")
    with browser.open(fresh=True) as fresh:
        visit(fresh, link)
        expect(fresh.get_by_role("region", name="Candidates chosen together")).to_contain_text(
            "gated_deltanet"
        )
        fresh.get_by_role("link", name="Compare these").click()
        expect(fresh.locator(".st-key-trials-chooser")).to_contain_text("1 ★ mamba2")
        assert parse_qs(urlsplit(fresh.url).query)["with"] == ["0,2,1"]


@pytest.mark.slow
def test_fronts_of_studies_and_of_routers_stand_in_one_chart_with_their_hypervolumes(
    server: Server, browser: Chromium, database: Path
) -> None:
    with Study.open(str(database), STUDY) as study, Study.open(str(database), TWIN) as twin:
        volumes = {s.row.name: s.hypervolume() for s in (study, twin)}
        found = {c.row.number: c for c in study.read_candidates()}
        objectives, reference = study.objectives, study.row.reference_point
    with browser.open(width=1920, dark=True) as page:
        visit(page, server.url("front", study=STUDY))
        page.get_by_role("combobox", name="And of other studies").click()
        page.get_by_role("option", name=TWIN).click()
        page.keyboard.press("Escape")
        table = page.get_by_role("region", name="Fronts and their hypervolumes")
        for volume in volumes.values():
            expect(table).to_contain_text(str(volume)[:8])
        layers = shown(page, having=TWIN)
        assert sorted(n for n in layers[STUDY] if n is not None) == [0, 1, 2, 3, 4, 5]
        assert layers[TWIN] == [None] * 4
        link = page.url
        picture(page, "dashboard-overlay-dark-1920")
    with browser.open(fresh=True) as fresh:
        visit(fresh, link.replace("fronts=the+study", "fronts=routers"))
        layers = shown(fresh)
        assert layers["gate:learned"] == [4]
        assert layers["mode:segment_random"] == [3]
        assert layers[TWIN] == [None] * 4
        alone = front_volume([replace(found[4], on_front=True)], objectives, reference or {})
        table = fresh.get_by_role("region", name="Fronts and their hypervolumes")
        expect(table).to_contain_text(str(alone)[:8])


@pytest.mark.slow
def test_zero_on_a_log_axis_makes_it_linear_and_is_said(
    server: Server, browser: Chromium, database: Path
) -> None:
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY, x="state_bytes"))
        expect(page.get_by_text("6 candidates shown").first).to_be_visible()
        chart = page.locator(".st-key-front-chart .js-plotly-plot").last
        assert chart.evaluate("p => p.layout.xaxis.type") == "log"
        with sqlite3.connect(database, timeout=30) as connection:
            connection.execute(
                "UPDATE trial SET ledger = json_set(ledger, '$.state_bytes', 0), revision = revision + 1 WHERE number = 3 AND "
                "study_id = (SELECT id FROM study WHERE name = ?)",
                (STUDY,),
            )
        expect(page.get_by_text("The axis is linear: 1 candidates have")).to_be_visible(timeout=20_000)
        assert shown(page)
        traces = drawn(page, "front-chart")
        assert 0 in [x for t in traces if t["customdata"] for x in t["x"]]
        page.get_by_text("How it is drawn").click()
        still(page.get_by_test_id("stExpanderDetails"))
        page.get_by_role("combobox", name="Candidates shown").click()
        page.get_by_role("option", name="front alone").click()
        expect(page.get_by_text("3 candidates shown; not shown: 3 dominated.")).to_be_visible()


@pytest.mark.slow
def test_every_control_and_each_choice_is_reached_with_the_tab_key(server: Server, browser: Chromium) -> None:
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY))
        drawn(page, "front-chart")
        expect(page.get_by_role("combobox", name="Study")).to_be_visible()
        expect(page.get_by_role("combobox", name="Candidates")).to_be_visible()
        seen: list[str] = []
        # The last control of the page saves the study as JSON.
        while len(seen) < 90 and not any(n.startswith("BUTTON") and "JSON" in n for n in seen[-1:]):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate(
                    """() => { const e = document.activeElement;
                    return `${e.getAttribute('role') || e.tagName} ${e.getAttribute('aria-label')
                        || document.getElementById(e.getAttribute('aria-labelledby'))?.innerText
                        || e.labels?.[0]?.innerText || e.innerText}` }"""
                )
            )
        choosers = ("Study", "Across", "Up", "Fronts of", "And of other studies", "Candidate", "Candidates")
        for control in (*(f"combobox {name}" for name in choosers), "How it is drawn", "JSON"):
            assert any(control in name for name in seen), f"{control} is none of {[n[:40] for n in seen]}"
        page.get_by_role("combobox", name="Candidate", exact=True).focus()
        page.keyboard.type("1 (on")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile("trial=1"))
        expect(page.locator(".st-key-details").get_by_role("heading", name="Candidate 1")).to_be_visible()


@pytest.mark.slow
def test_two_sessions_choose_for_themselves(server: Server, browser: Chromium) -> None:
    with browser.open(fresh=True) as one, browser.open(fresh=True) as other:
        visit(one, server.url("front", study=STUDY, trial=1, fronts="routers"))
        visit(other, server.url("front", study=TWIN, trial=0, log=0))
        expect(one.locator(".st-key-details").get_by_role("heading", name="Candidate 1")).to_be_visible()
        expect(other.locator(".st-key-details").get_by_role("heading", name="Candidate 0")).to_be_visible()
        assert shown(one)["gate:learned"] == [4]
        assert "gate:learned" not in shown(other)
        assert [p.get_by_role("combobox", name="Study").input_value() for p in (one, other)] == [STUDY, TWIN]


@pytest.mark.slow
def test_speeds_of_two_devices_are_chosen_between_and_never_mixed(
    server: Server, browser: Chromium, database: Path
) -> None:
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY, over=ELSEWHERE))
        expect(page.get_by_text(f"device {GPU} instead of {DEVICE}")).to_be_visible()
        assert sum(map(len, shown(page).values())) == 6
        page.get_by_role("combobox", name="decode, tokens/s: measured under").click()
        page.get_by_role("option", name=GPU).click()
        # Under the other device's key one candidate is left, and the study that was timed there can stand beside it.
        expect(
            page.get_by_text("3 candidates shown; not shown: 5 done but not measured yet.")
        ).to_be_visible()
        assert shown(page, having=ELSEWHERE) == {STUDY: [0], ELSEWHERE: [None, None]}
        link = page.url
    with browser.open(fresh=True) as fresh:
        visit(fresh, link)
        assert shown(fresh, having=ELSEWHERE) == {STUDY: [0], ELSEWHERE: [None, None]}
        visit(fresh, server.url("front", study=STUDY, x="prefill_tokens_per_s"))
        (trace,) = [t for t in drawn(fresh, "front-chart") if t["customdata"] and t["customdata"][0][0] == 5]
        assert trace["x"] == pytest.approx([11 * SKETCHES[5].speeds[0]])
