from __future__ import annotations

import math

import pytest

from crossbreed.figures.words import amount, chart_text, code, number, raced, si, size


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (999_999, "1M"),
        (1234, "1.23k"),
        (0.9999, "1"),
        (-2.5e9, "-2.5G"),
        (0, "0"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_prefixes_are_chosen_after_rounding(value: float | None, shown: str) -> None:
    assert si(value) == shown


def test_speeds_keep_their_digits_and_bytes_their_unit() -> None:
    assert number(1201.4) == "1,201"
    assert number(0.96249) == "0.962"
    assert number(12_345_678) == "12.35M"
    assert size(1536) == "1.5\N{NO-BREAK SPACE}KiB"
    assert amount("memory_bytes", 1024**2) == "1\N{NO-BREAK SPACE}MiB"
    assert amount("parameters", 123_456) == "123.5k"


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "<b>x</b>", "[a](http://b)", "`", "$x$ :red[y]"])
def test_a_name_in_markdown_is_one_code_span_with_a_fence_that_it_cannot_close(text: str) -> None:
    shown = code(text)
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    assert shown.startswith(fence)
    assert shown.endswith(fence)
    inner = shown[len(fence) : -len(fence)]
    assert inner.strip() == text
    # CommonMark: a run of exactly as many backticks as the fence would close it.
    assert fence not in _runs(inner)


def _runs(text: str) -> list[str]:
    return ["`" * len(run) for run in "".join(c if c == "`" else " " for c in text).split()]


def test_a_name_in_a_chart_is_not_markup() -> None:
    assert chart_text("<a href='x'>&") == "&lt;a href='x'&gt;&amp;"


def test_backends_that_a_run_has_timed_stand_with_their_times_and_those_left_out_with_the_cause() -> None:
    speed = {
        "mixer": "mamba2",
        "sublayer": "0f",
        "device": "a GPU",
        "dtype": "bfloat16",
        "batch": 8,
        "tokens": 4096,
        "backend": "fla",
        "seconds": {"reference": 0.0263, "fla": 0.0155},
        "left_out": {"mamba_ssm": "it was not ready within 120 s"},
    }
    words = "fla 15.5 ms, reference 26.3 ms, mamba_ssm left out: it was not ready within 120 s"
    assert raced({"speeds": [speed]}) == {"mamba2, a training pass of 8 x 4096 tokens in bfloat16": words}
    assert raced({"speeds": None}) == raced({}) == {}
