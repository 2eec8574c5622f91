"""Where one curve passes another."""

from __future__ import annotations

import pytest

from benchmarks.crossings import crossing, crossings, formulas


def test_a_crossing_lies_between_contexts_on_a_line_of_logarithms():
    assert crossing({1000: 0.5, 4000: 2.0}) == {"from": "at", "tokens": 2000}
    assert crossing({10: 2.0, 100: 0.5, 1000: 2.0})["tokens"] == pytest.approx(316, abs=1)


def test_curves_that_do_not_cross_say_on_which_side():
    assert crossing({10: 1.1, 100: 1.2}) == {"from": "below", "tokens": 10}
    assert crossing({10: 1.1, 100: 0.9}) == {"from": "above", "tokens": 100}


def test_formulas_are_those_of_the_paper_and_have_no_value_where_nothing_is_skipped():
    found = formulas(128_256, 1024, 8, 0.22)
    assert found["formula_flops"] == pytest.approx(128_256 / 1.56 - 1024)
    assert found["formula_bytes"] == pytest.approx(128_256 / 16 / 0.78)
    assert set(formulas(10, 4, 1, 1.0).values()) == {None}


def test_arms_are_compared_at_the_contexts_that_both_have():
    def row(arm: str, rate: str | None, context: int, speed: float) -> dict[str, object]:
        return {"arm": arm, "rate": rate, "batch": 1, "context": context, "tokens_per_s": speed}

    rows = [row("AMOR, entropy gate", "0.22", c, s) for c, s in ((10, 1.0), (20, 1.0), (40, 2.0))]
    rows += [row("serial hybrid", None, c, 1.5) for c in (10, 40)]
    (found,) = crossings({"crossover": rows}, 100, 10)
    assert (found["contexts"], found["rival"], found["from"]) == ([10, 40], "serial hybrid", "at")
