"""Studies whose plugins change between sessions: a part that joins, and one that was removed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.errors import PluginError, UnknownName
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.search.study_setting import StudySetting
from tests.core.search.material import TOY, Scripted, by_number, candidates, drive, plugin, setting
from tests.core.search.routers import COIN

GATED = TOY.replace(
    '{"sublayers": sublayers}',
    '{"sublayers": sublayers, **({"gate": {"name": gate}} if gate != "none" else {})}',
).replace("heads = self", 'gate = draw.choose("gate", ("none", *setting.routers))\n        heads = self')
"""The toy space with a gate of any router that is registered."""


def registry(coin: bool) -> Registry:
    return Host.load(
        [plugin("toy.py", GATED), *([plugin("coin.py", COIN)] if coin else [])], third_party=False
    )


def study(parts: Registry, trials: int, routers: Any = "all", sampler: str = "grid") -> StudySetting:
    return setting(
        parts,
        space={"params": {"widths": [8, 16], "starts": [8]}, "routers": routers},
        search={"trials": trials, "seeds": 1, "sampler": sampler},
    )


def gates(rows: Any) -> list[str]:
    return [row.draws.get("gate", "-") for row in rows.values()]


def test_a_router_registered_later_joins_and_history_is_kept(database: Path) -> None:
    _, repository, number = drive(database, study(registry(False), 3), Scripted())
    before = by_number(repository, number)
    assert "coin" not in gates(before)
    end, repository, number = drive(database, study(registry(True), 30), Scripted())
    after = by_number(repository, number)
    assert end == "done"
    # Two widths, each with every gate; what was there keeps its number, hash and results.
    assert gates(after).count("coin") == 2
    assert {n: (r.hash, r.draws) for n, r in before.items()} == {
        n: (after[n].hash, after[n].draws) for n in before
    }
    assert all(row.state == "done" for row in after.values())


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_a_model_goes_on_over_options_that_joined_and_left(database: Path, sampler: str) -> None:
    drive(database, study(registry(True), 7, sampler=sampler), Scripted())
    end, repository, number = drive(database, study(registry(False), 9, sampler=sampler), Scripted())
    rows = by_number(repository, number)
    assert end == "done"
    assert "coin" not in [row.draws.get("gate") for n, row in rows.items() if n > 7]


def test_a_removed_router_leaves_results_and_gets_no_more_runs(database: Path) -> None:
    _, repository, number = drive(database, study(registry(True), 30), Scripted())
    front = {c.row.number for c in candidates(repository, number) if c.on_front}
    gone = study(registry(False), 30)
    more = gone.file.search.model_copy(update={"seeds": 2})
    again = StudySetting(**{**vars(gone), "file": gone.file.model_copy(update={"search": more})})
    end, repository, number = drive(database, again, Scripted())
    rows = by_number(repository, number)
    assert end == "done"
    coins = {n for n, row in rows.items() if row.draws.get("gate") == "coin"}
    assert coins & front
    reports = {n: sum(s.role == "report" for s in row.seeds) for n, row in rows.items()}
    assert all(reports[n] == 1 for n in coins & front)
    assert all(reports[n] == 2 for n in front - coins)
    removed = [e.payload["cause"] for e in repository.events_of(number, "plugin_removed")]
    assert removed
    assert all("unknown router 'coin'" in cause for cause in removed)


def test_runs_that_wait_for_a_removed_router_are_named_and_go_on_when_it_is_back(database: Path) -> None:
    crash = Scripted()

    def stop(job: Job) -> None:
        if "coin" in str(job.architecture) and not crash.stopped:
            signal.raise_signal(signal.SIGINT)

    crash.before = stop
    assert drive(database, study(registry(True), 30), crash)[0] == "interrupted"
    with pytest.raises(PluginError, match=r"run tiny/\d/0 is still to be trained.*router 'coin'.*--plugin"):
        drive(database, study(registry(False), 30), Scripted())
    with pytest.raises(UnknownName, match="'coin'"):
        study(registry(False), 30, routers=["coin"])
    end, repository, number = drive(database, study(registry(True), 30), Scripted())
    assert end == "done"
    assert {row.state for row in by_number(repository, number).values()} == {"done"}
