"""What benchmarks share: records that add up, arms in turn, and pieces that do not stop each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.attempts import attempts, deadline, made
from benchmarks.interleaved import elapsed, in_turn, interleaved, laps, ratio
from benchmarks.record import Record

CPU = torch.device("cpu")


def fail() -> int:
    raise RuntimeError("the kernel is wrong")


def missing() -> int:
    raise ImportError("No module named 'fla'")


def test_a_row_takes_the_place_of_one_of_the_same_names_in_another_run(tmp_path: Path) -> None:
    out = tmp_path / "record.json"
    first = Record(out, device="cpu")
    first.keep({"arm": "a", "size": 1, "ms": 2.0}, ("arm", "size"))
    first.keep({"arm": "b", "size": 1, "ms": 3.0}, ("arm", "size"))
    second = Record(out, device="cpu")
    second.keep({"arm": "a", "size": 1, "ms": 4.0}, ("arm", "size"))
    second.keep({"arm": "a", "size": 2, "ms": 5.0}, ("arm", "size"))
    second.keep({"name": "whole"}, ("name",), part="presets")
    found = json.loads(out.read_text())
    assert [(row["arm"], row["size"], row["ms"]) for row in found["rows"]] == [
        ("b", 1, 3.0),
        ("a", 1, 4.0),
        ("a", 2, 5.0),
    ]
    assert (found["device"], found["presets"]) == ("cpu", [{"name": "whole"}])


@pytest.mark.parametrize("about", [{"device": "H200"}, {"device": "cpu", "shape": {"batch": 2}}])
def test_a_record_of_something_else_is_not_added_to(tmp_path: Path, about: dict[str, object]) -> None:
    out = tmp_path / "record.json"
    Record(out, device="cpu").keep({"arm": "a"}, ("arm",))
    with pytest.raises(SystemExit, match="give another --out"):
        Record(out, **about)


def test_arms_take_turns_and_a_repeat_is_not_begun_too_late() -> None:
    calls: list[str] = []

    def arm(name: str) -> Callable[[], int]:
        def call() -> int:
            calls.append(name)
            return len(calls)

        return call

    arms = {"a": arm("a"), "b": arm("b")}
    assert in_turn(arms, 2) == {"a": [1, 3], "b": [2, 4]}
    assert calls == ["a", "b", "a", "b"]
    assert in_turn(arms, 5, late=lambda: len(calls) >= 8) == {"a": [5, 7], "b": [6, 8]}


def test_what_warms_up_counts_for_nothing_and_time_is_of_one_call() -> None:
    ran = 0

    def run() -> None:
        nonlocal ran
        ran += 1

    found = interleaved({"arm": run}, 3, CPU, calls=1000, warm=2)
    assert (ran, len(found["arm"])) == (5, 3)
    assert 0 <= max(found["arm"]) < 1


def test_laps_are_counted_from_the_first_start() -> None:
    first, second = laps([lambda: sum(range(20_000))] * 2, CPU)
    assert 0 < first < second
    assert elapsed(lambda: None, CPU) >= 0
    assert ratio([2.0, 9.0, 4.0], [1.0, 1.0, 2.0]) == 2.0


def test_a_piece_that_fails_stops_no_other_and_one_that_comes_too_late_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pieces = {"first": lambda: 1, "second": fail, "third": lambda: 3, "fourth": lambda: 4}
    asked = iter([False, False, False, True])
    assert list(attempts(pieces, lambda: next(asked))) == [1, 3]
    said = capsys.readouterr()
    assert "fourth: not measured for want of time" in said.out
    assert "the kernel is wrong" in said.err
    assert deadline(-1.0)()
    assert not deadline(60.0)()


def test_arms_that_cannot_be_made_are_left_out_and_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert made({"ours": lambda: 1, "theirs": missing, "broken": fail}) == {"ours": 1}
    said = capsys.readouterr()
    assert "not here: No module named 'fla'" in said.out
    assert "the kernel is wrong" in said.err
