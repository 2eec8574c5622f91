"""The dashboard in a real browser, over a real database, compared with what is stored."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import psutil
import pytest
from playwright.sync_api import expect

from crossbreed.core.search.candidates import Candidate
from crossbreed.core.search.study import Study
from crossbreed.figures.words import amount, interval
from crossbreed.storage import Repository
from crossbreed.storage.rows import PointRow
from tests.dashboard.browser import (
    Chromium,
    Server,
    click_candidate,
    drawn,
    markers,
    metric,
    picture,
    serving,
    visit,
)
from tests.dashboard.material import (
    CLASSES,
    DEVICE,
    HOSTILE,
    LENGTHS,
    ON_FRONT,
    RUNNING,
    SKETCHES,
    STUDY,
    add_run,
    breakdown,
    store,
)
from tests.services import PASSWORD

FOLLOWED_MS = 20_000
"""Patience for what a page that follows the database shows by itself; it looks every two seconds."""


def stored(database: Path) -> dict[int, Candidate]:
    with Study.open(str(database)) as study:
        return {c.row.number: c for c in study.read_candidates()}


def test_a_study_is_chosen_and_a_clicked_marker_shows_what_is_stored(
    server: Server, browser: Chromium, database: Path
) -> None:
    candidates = stored(database)
    with browser.open() as page:
        visit(page, server.url())
        expect(page.get_by_role("heading", name=STUDY)).to_be_visible()
        expect(page.get_by_text("runs: 18 done, 1 failed, 1 off budget")).to_be_visible()
        page.get_by_role("link", name="Its front").click()
        expect(page.get_by_text("Click a marker, or choose above, to see a candidate.")).to_be_visible()
        for number in (1, 0):
            click_candidate(page, number)
            details = page.locator(".st-key-details")
            expect(details.get_by_role("heading", name=f"Candidate {number}")).to_be_visible()
            candidate = candidates[number]
            expect(details.get_by_text(candidate.row.family, exact=True)).to_be_visible()
            for name, label in (("score", "score"), ("decode_tokens_per_s", "decode, tokens/s")):
                expect(metric(page, label)).to_contain_text(amount(name, candidate.means[name]))
                expect(metric(page, label)).to_contain_text(interval(candidate, name))
            parameters = amount("parameters", (candidate.row.ledger or {})["parameters"])
            expect(details.get_by_role("row", name=f"parameters {parameters}").first).to_be_visible()
        picture(page, "dashboard-front-light-1280")
        link = page.url
    assert "study=recall-small" in link
    assert "trial=0" in link
    # The address alone brings the view back, in a browser that knows nothing.
    with browser.open(fresh=True) as fresh:
        visit(fresh, link)
        expect(fresh.locator(".st-key-details").get_by_role("heading", name="Candidate 0")).to_be_visible()


def test_the_chart_shows_the_stored_front_and_says_what_it_hides(
    server: Server, browser: Chromium, database: Path
) -> None:
    candidates = stored(database)
    with browser.open(width=1920, height=1080, dark=True) as page:
        visit(page, server.url("front", trial=2))
        expect(markers(page).first).to_be_visible()
        drawn = page.locator(".js-plotly-plot").first.evaluate(
            """plot => plot.data.filter(t => t.customdata).flatMap(t => t.customdata.map(
                (d, i) => [d[0], Array.from(t.x)[i], Array.from(t.y)[i]]))"""
        )
        assert sorted(number for number, _, _ in drawn) == [0, 1, 2, 3, 4, 5]
        for number, x, y in drawn:
            means = candidates[number].means
            assert (x, y) == pytest.approx((means["decode_tokens_per_s"], means["score"]))
        expect(page.get_by_text("not shown: 1 infeasible, 1 failed, 1 off budget.")).to_be_visible()
        expect(page.get_by_text(f"decode, batch 1, 32 tokens, float32, on {DEVICE}, best")).to_be_visible()
        assert page.locator(".js-plotly-plot").first.evaluate("p => p.layout.xaxis.type") == "log"
        # A bar where there is an interval, and not even its caps where there is none.
        intervals = [i for n, _, _ in drawn for i in candidates[n].intervals.values() if i is not None]
        assert page.locator(".errorbar path.xerror, .errorbar path.yerror").count() == len(intervals)
        page.get_by_text("How it is drawn").click()
        page.get_by_text("Show off budget").click()
        expect(page.get_by_text("not shown: 1 infeasible, 1 failed.")).to_be_visible()
        page.get_by_text("Log axis across").click()
        expect(page).to_have_url(re.compile("log=0.*off=1|off=1.*log=0"))
        page.get_by_text("Log axis up").click()
        expect(page).to_have_url(re.compile("logy=1"))
        picture(page, "dashboard-front-dark-1920")
        link = page.url
    with browser.open(fresh=True) as fresh:
        visit(fresh, link)
        expect(fresh.get_by_text("not shown: 1 infeasible, 1 failed.")).to_be_visible()
        types = fresh.locator(".js-plotly-plot").first.evaluate(
            "p => [p._fullLayout.xaxis.type, p._fullLayout.yaxis.type]"
        )
        assert types == ["linear", "log"]
    line = [c.row.number for c in candidates.values() if c.on_front]
    assert sorted(line) == sorted(ON_FRONT)


def test_a_candidate_shows_genome_ledger_certificate_curves_and_points(
    server: Server, browser: Chromium, database: Path
) -> None:
    candidate = stored(database)[3]
    ledger = candidate.row.ledger or {}
    with browser.open() as page:
        visit(page, server.url("candidate", study=STUDY, trial=3))
        expect(page.get_by_role("heading", name="Candidate 3")).to_be_visible()
        drawing = page.locator(".st-key-drawing")
        for text in (
            "multi_mixer: mamba2 | attention",
            "mode router: segment_random",
            "stage 0: layered, 2 deep",
        ):
            expect(drawing.get_by_text(re.compile(re.escape(text)))).to_be_visible()
        expect(page.get_by_role("cell", name=f"{ledger['parameters']:,}").first).to_be_visible()
        for residual in (candidate.row.certificate or {})["quantities"]:
            expect(page.get_by_role("cell", name=f"{residual['residual']:+.2%} ✓")).to_be_visible()
        expect(page.locator(".st-key-curves .scatterlayer .trace")).to_have_count(1)
        expect(page.get_by_text("1 seed, no interval").first).to_be_visible()
        expect(page.get_by_text(f"crossbreed show {candidate.row.hash[:12]}")).to_be_visible()
        page.get_by_text("Genome as YAML").click()
        expect(page.get_by_text("mixer: multi_mixer")).to_be_visible()
        expect(page.get_by_text("2×: not judged yet.")).to_be_visible()
        picture(page, "dashboard-candidate-light-1280")
        # Of one that never ran nothing is waited for.
        visit(page, server.url("candidate", study=STUDY, trial=6))
        expect(page.get_by_text("2×: not applicable; no run of this candidate came so far.")).to_be_visible()


@pytest.mark.slow
def test_a_candidate_shows_its_speed_by_context_and_its_score_on_longer_texts(
    server: Server, browser: Chromium, database: Path
) -> None:
    with Repository.open(str(database), read_only=True) as repository:
        runs = repository.trial_detail(repository.open_study(STUDY).id, 0).runs[1:]

    def mean(of: Callable[[PointRow], float], point: str) -> float:
        return sum(of(run.points[point]) for run in runs) / len(runs)

    points = ("own", "length:2", "length:4")
    with browser.open() as page:
        visit(page, server.url("candidate", study=STUDY, trial=0, by="loss_nats"))
        (line,) = drawn(page, "lengths")
        loss = [mean(lambda p: p.evaluations[-1].metrics["loss_nats"], point) for point in points]
        assert (line["x"], line["y"]) == ([1, 2, 4], pytest.approx(loss))
        lines = {t["name"]: t for t in drawn(page, "contexts")}
        prefill = [mean(lambda p: p.measured("prefill_tokens_per_s")[0].median, point) for point in points]
        assert lines["prefill, tokens/s"]["x"] == [32, 64, 128]
        assert lines["prefill, tokens/s"]["y"] == pytest.approx(prefill)


@pytest.mark.slow
def test_a_candidate_shows_its_loss_by_class_and_by_position(server: Server, browser: Chromium) -> None:
    def mean(place: int, of: str, times: int) -> float:
        found = [breakdown(32 * times, LENGTHS.get(times, 1.0) * score) for score in SKETCHES[0].scores]
        return sum(part["positions"][of][place] / 512 for part in found) / len(found)

    with browser.open() as page:
        visit(page, server.url("candidate", study=STUDY, trial=0))
        (dots,) = drawn(page, "loss-classes")
        assert dots["y"] == list(CLASSES)
        assert dots["x"] == pytest.approx([mean(1, "loss_nats", 1), mean(-1, "loss_nats", 1)], rel=1e-3)
        lines = {line["name"]: line for line in drawn(page, "loss-positions")}
        for times in (1, 2, 4):
            line = lines[f"{times}× the training length"]
            assert line["y"][0] is None
            assert line["y"][-1] == pytest.approx(mean(-1, "loss_nats", times))
            assert len(line["x"]) == 32 * times
        picture(page, "dashboard-losses-light-1280")
        visit(page, server.url("candidate", study=STUDY, trial=0, of="accuracy"))
        line = drawn(page, "loss-positions")[0]
        assert line["y"][-1] == pytest.approx(mean(-1, "right", 1))
        # Of one that never ran there is nothing to show, and that is said.
        visit(page, server.url("candidate", study=STUDY, trial=6))
        expect(page.get_by_text("No run whose numbers count has an evaluation")).to_be_visible()


def test_every_candidate_is_in_the_table_with_its_state(
    server: Server, browser: Chromium, database: Path
) -> None:
    with browser.open(width=1920) as page:
        visit(page, server.url("candidates", study=STUDY))
        expect(page.get_by_text("9 candidates: 6 done, 1 infeasible, 1 failed, 1 off budget")).to_be_visible()
        cells = page.get_by_test_id("stDataFrame").locator("td")
        expect(cells.filter(has_text=re.compile("^infeasible$"))).to_have_count(1)
        expect(cells.filter(has_text=re.compile("^off budget$"))).to_have_count(1)
        # Cells hold the stored numbers, whatever their format, so that they sort and export as such.
        speeds = cells.filter(has_text=re.compile(r"^1501\.6"))
        assert float(speeds.inner_text()) == pytest.approx(stored(database)[0].means["decode_tokens_per_s"])
        picture(page, "dashboard-candidates-light-1920")


def test_hostile_names_are_text(server: Server, browser: Chromium) -> None:
    with browser.open() as page:
        visit(page, server.url("candidate", study=STUDY, trial=7))
        expect(page.get_by_text(HOSTILE, exact=True).first).to_be_visible()
        page.get_by_text("Traceback of seed 0").click()
        expect(page.get_by_text("ValueError: <img src=x").last).to_be_visible()
        visit(page, server.url("front", study="<b>no</b>"))
        expect(page.get_by_text("There is no study <b>no</b> in this database")).to_be_visible()
        assert page.evaluate("window.hacked") is None
        assert page.locator("img[src=x]").count() == 0
        assert page.get_by_role("link", name="link").count() == 0


def test_a_page_follows_a_running_search_without_a_reload(
    server: Server, browser: Chromium, database: Path
) -> None:
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY, trial=5))
        expect(page.get_by_text("1 seed, no interval").first).to_be_visible()
        page.evaluate("window.notReloaded = true")
        with Repository.open(str(database)) as repository:
            study = repository.open_study(STUDY)
            trial = repository.trial(study.id, 5)
            for seed in (1, 2, 3):
                add_run(repository, trial, seed, SKETCHES[RUNNING])
        expect(page.get_by_text("(95%, 3 seeds)").first).to_be_visible(timeout=FOLLOWED_MS)
        candidate = stored(database)[5]
        expect(metric(page, "score")).to_contain_text(amount("score", candidate.means["score"]))
        # The driver's lease alone changes nothing that is recorded, and is followed all the same.
        page.get_by_role("link", name="Studies").click()
        expect(page.get_by_text("idle", exact=True).first).to_be_visible()
        with Repository.open(str(database)) as repository:
            hold = repository.acquire_driver_lease(study.id)
            expect(page.get_by_text("running", exact=True).first).to_be_visible(timeout=FOLLOWED_MS)
            expect(page.get_by_text(f"process {os.getpid()} on")).to_be_visible()
            repository.release_driver_lease(study.id, hold.token)
        expect(page.get_by_text("idle", exact=True).first).to_be_visible(timeout=FOLLOWED_MS)
        assert page.evaluate("window.notReloaded") is True


def test_a_database_that_vanishes_is_said_and_found_again(
    server: Server, browser: Chromium, database: Path
) -> None:
    away = database.with_suffix(".away")
    with browser.open() as page:
        visit(page, server.url("candidates", study=STUDY))
        expect(page.get_by_text("9 candidates")).to_be_visible()
        database.rename(away)
        try:
            expect(page.get_by_text("The database cannot be read")).to_be_visible(timeout=FOLLOWED_MS)
            with browser.open() as late:
                visit(late, server.url("front", study=STUDY))
                expect(late.get_by_text("The database cannot be read")).to_be_visible()
                away.rename(database)
                expect(late.locator(".js-plotly-plot").first).to_be_visible(timeout=FOLLOWED_MS)
        finally:
            if away.exists():
                away.rename(database)
        expect(page.get_by_text("9 candidates")).to_be_visible(timeout=FOLLOWED_MS)


def test_another_study_is_chosen_with_its_own_empty_state(
    server: Server, browser: Chromium, database: Path
) -> None:
    hostile = "<script>window.hacked=1</script>**x**"
    with Repository.open(str(database)) as repository:
        spec = repository.open_study(STUDY).spec
        repository.create_study("fresh", spec)
    with sqlite3.connect(database, timeout=30) as connection:
        # No command makes such a name; somebody's own script might.
        connection.execute("UPDATE study SET name = ? WHERE name = 'fresh'", (hostile,))
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY, trial=2))
        page.get_by_role("combobox", name="Study").click()
        page.get_by_role("option", name=hostile).click()
        expect(page.get_by_text("No candidate is trained and measured yet.")).to_be_visible()
        expect(page.get_by_text("Click a marker, or choose above, to see a candidate.")).to_be_visible()
        page.get_by_role("link", name="Studies").click()
        expect(page.get_by_role("heading", name=hostile)).to_be_visible()
        assert page.evaluate("window.hacked") is None


def test_the_server_listens_on_loopback_only(server: Server) -> None:
    listening = {
        c.laddr.ip for c in psutil.Process(server.pid).net_connections("inet") if c.status == "LISTEN"
    }
    assert listening == {"127.0.0.1"}
    with socket.socket() as elsewhere, pytest.raises(ConnectionRefusedError):
        elsewhere.connect((_own_address(), server.port))


def _own_address() -> str:
    """An address of this machine other than 127.0.0.1."""
    found = [a.address for nic in psutil.net_if_addrs().values() for a in nic if a.family == socket.AF_INET]
    return next((a for a in found if not a.startswith("127.")), "127.0.0.2")


def test_the_server_holds_the_database_open_for_reading_only(
    server: Server, browser: Chromium, database: Path
) -> None:
    before = _content(database)
    with browser.open() as page:
        visit(page, server.url("front", study=STUDY))
        expect(markers(page).first).to_be_visible()
        held = [f for f in Path(f"/proc/{server.pid}/fd").iterdir() if os.path.realpath(f) == str(database)]
        assert held
        for descriptor in held:
            flags = (
                Path(f"/proc/{server.pid}/fdinfo/{descriptor.name}").read_text().split("flags:")[1].split()[0]
            )
            assert int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
        assert _content(database) == before


def _content(database: Path) -> str:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        return hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest()


def test_a_page_asks_no_other_host(server: Server, browser: Chromium) -> None:
    asked: list[str] = []
    with browser.open(fresh=True) as page:
        page.on("request", lambda request: asked.append(request.url))
        visit(page, server.url("front", study=STUDY))
        expect(markers(page).first).to_be_visible()
        # The icon of the page is set once everything else stands.
        icon = page.locator("link[rel~=icon]").first
        expect(icon).to_have_attribute("href", re.compile("^data:image/svg"))
    elsewhere = [a for a in asked if not a.startswith((server.address, "data:", "blob:"))]
    assert elsewhere == []


def test_no_request_reaches_a_file_outside_the_app(server: Server, database: Path) -> None:
    for path in (
        "../results.db",
        "%2e%2e/%2e%2e/results.db",
        "app/static/../../app.py",
        "media/../../etc/passwd",
    ):
        try:
            with urlopen(f"{server.address}/{path}", timeout=10) as answer:
                body = answer.read()
        except HTTPError as refusal:
            body = refusal.read()
        assert b"SQLite format" not in body
        assert b"root:" not in body
        assert b"st.navigation" not in body


def test_the_server_never_failed(server: Server) -> None:
    """Last in the file: nothing that the tests above did made the server print a traceback."""
    assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
def test_a_study_on_postgresql_is_browsed_as_one_in_a_file(
    postgres_url: str, browser: Chromium, tmp_path: Path
) -> None:
    store(postgres_url, SKETCHES[:2])
    with serving(postgres_url, tmp_path) as server, browser.open() as page:
        visit(page, server.url("front", study=STUDY))
        click_candidate(page, ON_FRONT[0])
        details = page.locator(".st-key-details")
        expect(details.get_by_role("heading", name=f"Candidate {ON_FRONT[0]}")).to_be_visible()
        for secret in (PASSWORD, quote(PASSWORD, safe="")):
            assert secret not in page.content()
            assert secret not in server.log.read_text()
