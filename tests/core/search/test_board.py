"""The board follows the tables by what has changed, and shows what a whole reading shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossbreed.core.host import Registry
from crossbreed.core.lab.job import Job
from crossbreed.core.search.board import Board
from crossbreed.core.search.candidates import read
from crossbreed.storage import Repository
from tests.core.search.material import Scripted, drive, setting, width_of


def test_reading_changes_shows_what_reading_everything_shows(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh, checked = Board.refresh, []

    def compared(board: Board) -> bool:
        fresh = refresh(board)
        if fresh:
            rows = board.repository.candidates(board.study_id, points=None)
            assert board.rows == rows
            assert board.candidates == read(rows, board.objectives)
            assert board.keyed == board.objectives.over(rows)
            checked.append(len(rows))
        return fresh

    monkeypatch.setattr(Board, "refresh", compared)
    halved = setting(
        toys, train={"tokens": 4608, "rungs": 2, "lr": [1e-3, 1e-2]}, search={"trials": 2, "seeds": 1}
    )
    assert drive(database, halved, Scripted())[0] == "done"
    assert len(checked) > 20


def test_what_has_not_changed_is_not_read_again(
    database: Path, toys: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_rows: list[int] = []
    candidates = Repository.candidates

    def counted(repository: Repository, study_id: int, **options: Any) -> Any:
        found = candidates(repository, study_id, **options)
        if options.get("points", "own") is None:
            read_rows.append(len(found))
        return found

    monkeypatch.setattr(Repository, "candidates", counted)

    def one_is_best(job: Job) -> tuple[float, float]:
        return (0.9, 100.0) if width_of(job) == 32 else (0.1, 50.0)

    many = {"widths": list(range(8, 168, 8)), "starts": list(range(40, 88, 8))}
    study_setting = setting(toys, space={"params": many}, search={"trials": 6, "seeds": 1})
    drive(database, study_setting, Scripted(one_is_best))
    # Whole once, when the study is taken up; afterwards what was leased, ended or added since the last look.
    assert read_rows[-1] == 1
    assert max(read_rows) <= 3
