"""Jobs in this process."""

from __future__ import annotations

from typing import Any

import pytest

from crossbreed.core.lab import trial
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.team import MemberLost
from crossbreed.core.search.executors.base import Lost, Report
from crossbreed.core.search.executors.inline import InlineExecutor


def test_a_run_that_has_lost_the_process_of_a_device_is_lost_and_the_next_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(*_: Any) -> None:
        raise MemberLost("the process of device 1 of 2 is gone")

    monkeypatch.setattr(trial, "run", lose)
    executor, heard = InlineExecutor(), list[tuple[str, Report]]()
    job = Job(
        study="s", number=0, seed=0, lease="a", architecture={}, task={}, recipe={}, artefacts="", devices=2
    )
    executor.submit(job)
    executor.work(lambda lease, report: heard.append((lease, report)), 0.0)
    assert heard == [("a", Lost("the process of device 1 of 2 is gone"))]
    assert executor.running == 0
