from __future__ import annotations

import json
import math

import pytest

from crossbreed.cli.output import duration, percent, print_json, program, si, size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.1234, "0.123"),
        (999, "999"),
        (1000, "1k"),
        (1234567, "1.23M"),
        (-2.5e9, "-2.5G"),
        (999_999, "1M"),
        (1.5e15, "1500T"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_counts_have_decimal_prefixes(value: float | None, text: str) -> None:
    assert si(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 * 1024**3, "5 GiB"),
        (3 * 1024**4, "3 TiB"),
        (None, "-"),
    ],
)
def test_bytes_have_binary_prefixes(value: float | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.4, "0 s"), (59.6, "1 min 00 s"), (75, "1 min 15 s"), (7260, "2 h 01 min"), (None, "-")],
)
def test_durations_read_as_people_say_them(value: float | None, text: str) -> None:
    assert duration(value) == text


def test_residuals_are_signed() -> None:
    assert (percent(0.0123), percent(-0.02), percent(None)) == ("+1.23%", "-2.00%", "-")


def test_json_has_its_schema_and_no_number_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    print_json("thing", {"a": math.nan, "b": [math.inf, 1.5], "c": {"d": (1, None)}})
    assert json.loads(capsys.readouterr().out) == {
        "schema": "crossbreed/thing/1",
        "a": None,
        "b": [None, 1.5],
        "c": {"d": [1, None]},
    }


def test_printed_commands_run_as_this_one_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [".venv/bin/crossbreed", "search"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == ".venv/bin/crossbreed"
    monkeypatch.setattr("sys.argv", ["-c"])
    assert program() == "crossbreed"
