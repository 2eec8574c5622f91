from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from crossbreed.cli.front import candidates_of, find_study
from crossbreed.cli.live import PLAIN_SECONDS, SearchView
from crossbreed.core.search.candidates import Candidate, Objectives
from crossbreed.core.search.progress import Progress
from crossbreed.storage.repository import Repository
from tests.cli.conftest import SCHEMAS


@pytest.fixture
def stored(db: Path) -> tuple[list[Candidate], Objectives]:
    with Repository.open(str(db), read_only=True) as repository:
        return candidates_of(repository, find_study(repository, None))


def moment(candidates: list[Candidate]) -> Progress:
    return Progress(
        activity="training",
        states={"done": 9, "running": 2, "queued": 1},
        trials=3,
        trial_limit=12,
        infeasible=1,
        candidates=tuple(candidates),
        running=("small/4/0", "small/5/0"),
        tokens_per_s=12345.0,
        elapsed_s=75.0,
        eta_s=None,
        hypervolume=910.25,
    )


def test_the_panel_shows_states_front_pace_and_what_is_left(
    stored: tuple[list[Candidate], Objectives],
) -> None:
    candidates, objectives = stored
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200)
    with SearchView("small", objectives, console) as view:
        view.show(replace(moment(candidates), eta_s=130.0))
    text = screen.getvalue()
    for shown in (
        "3/12 candidates",
        "runs: 2 running, 1 queued, 9 done, 1 infeasible",
        "front of 2, hypervolume 910.2",
        "12.3k tokens/s",
        "1 min 15 s elapsed",
        "2 min 10 s left",
        "small/4/0, small/5/0",
        "family 0",
        "0.91 (0.885 to 0.935)",
    ):
        assert shown in text, shown
    assert "family 2" not in text


def test_without_a_terminal_lines_come_when_a_run_ends_or_time_has_passed(
    stored: tuple[list[Candidate], Objectives],
) -> None:
    candidates, objectives = stored
    now = [0.0]
    log = io.StringIO()
    with SearchView("small", objectives, Console(file=log, soft_wrap=True), clock=lambda: now[0]) as view:
        first = moment(candidates)
        view.show(first)
        view.show(first)  # nothing new
        view.show(replace(first, trials=4))  # a little new, too soon
        now[0] = 1.0
        view.show(replace(first, states={"done": 10, "running": 2}))  # a run ended: at once
        now[0] = 2.0 + PLAIN_SECONDS
        view.show(replace(first, states={"done": 10, "running": 2}, trials=5))
    lines = log.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("[1 min 15 s] training: 3/12 candidates, runs: 2 running, 1 queued, 9 done")
    assert "2 on the front, hypervolume 910.2; 12.3k tokens/s, - left" in lines[0]
    assert "10 done" in lines[1]
    assert "5/12 candidates" in lines[2]
    assert "\x1b" not in log.getvalue()


def test_a_job_that_waits_for_a_device_is_said_at_once_and_to_whom(
    stored: tuple[list[Candidate], Objectives],
) -> None:
    candidates, objectives = stored
    why = "device cpu is held by process 7 (other/3/0); timing waits until it is free"
    log, screen = io.StringIO(), io.StringIO()
    with SearchView("small", objectives, Console(file=log, soft_wrap=True), clock=lambda: 0.0) as view:
        view.show(moment(candidates))
        view.show(replace(moment(candidates), waiting=(why,)))
    assert why in log.getvalue().splitlines()[1]
    with SearchView("small", objectives, Console(file=screen, force_terminal=True, width=200)) as view:
        view.show(replace(moment(candidates), waiting=(why,)))
    assert why in screen.getvalue()


def failing(candidate: Candidate, **changes: object) -> Candidate:
    seeds = (*candidate.row.seeds[:-1], replace(candidate.row.seeds[-1], state="failed", **changes))
    return replace(candidate, row=replace(candidate.row, seeds=seeds))


def test_a_run_that_fails_is_said_once_with_its_cause_and_one_that_had_failed_before_is_not(
    stored: tuple[list[Candidate], Objectives],
) -> None:
    candidates, objectives = stored
    before = failing(candidates[0], cause="of another session")
    moments = [
        moment([before, *candidates[1:]]),
        moment(
            [before, failing(candidates[1], cause="exception: RuntimeError: no coin\ntoday"), *candidates[2:]]
        ),
    ]
    why = "candidate 1, seed 3 (family 1) failed: exception: RuntimeError: no coin today"
    for terminal in (False, True):
        log = io.StringIO()
        console = Console(file=log, force_terminal=terminal, width=200, highlight=False, soft_wrap=True)
        with SearchView("small", objectives, console, clock=lambda: 0.0) as view:
            for shown in (*moments, moments[-1]):
                view.show(shown)
        assert log.getvalue().count(why) == 1, terminal
        assert "of another session" not in log.getvalue()
    log = io.StringIO()
    console = Console(file=log, soft_wrap=True, highlight=False)
    with SearchView("small", objectives, console, clock=lambda: 0.0, as_json=True) as view:
        for shown in moments:
            view.show(shown)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    SCHEMAS[lines[-1]["schema"]].validate(lines[-1])
    assert [[f["cause"] for f in line["failures"]] for line in lines] == [
        [],
        ["exception: RuntimeError: no coin today"],
    ]


def test_beside_json_every_line_is_an_object_of_its_schema_on_a_terminal_too(
    stored: tuple[list[Candidate], Objectives],
) -> None:
    candidates, objectives = stored
    log = io.StringIO()
    console = Console(file=log, force_terminal=True, width=40, soft_wrap=True, highlight=False)
    with SearchView("small", objectives, console, as_json=True) as view:
        view.show(moment(candidates))
        view.show(replace(moment(candidates), activity="stopping"))
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    for line in lines:
        SCHEMAS[line["schema"]].validate(line)
    assert [line["activity"] for line in lines] == ["training", "stopping"]
    assert lines[0]["front"] == [0, 1]
    assert (lines[0]["hypervolume"], lines[0]["eta_s"]) == (910.25, None)
