"""Screening: of several proposals, the one whose known costs leave the most room on the front."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from crossbreed.core.host import Registry
from crossbreed.core.search.breeding import Breeder
from crossbreed.core.search.screening import Screen
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from tests.core.search.material import study_data

FLOPS = "decode_flops_per_token"
BOTH = {"score": "max", FLOPS: "min"}
REFERENCE = {"score": 0.0, FLOPS: 100.0}


def test_a_cost_is_certain_and_a_score_or_a_measured_speed_is_not() -> None:
    assert Screen(BOTH, REFERENCE).certain == [FLOPS]
    assert Screen({"score": "max", "decode_tokens_per_s": "max"}, {}).certain == []


def test_before_anybody_has_a_score_the_cheapest_has_the_most_room() -> None:
    screen = Screen(BOTH, REFERENCE)
    assert screen.room({FLOPS: 10.0}) == pytest.approx(90.0)
    assert screen.room({FLOPS: 10.0}) > screen.room({FLOPS: 40.0}) > screen.room({FLOPS: 100.0}) == 0.0


def test_room_is_the_volume_added_by_the_best_score_seen_at_the_candidates_cost() -> None:
    screen = Screen(BOTH, REFERENCE, front=[(0.5, 40.0)], seen=[(0.5, 40.0), (0.8, 90.0), (math.nan, 5.0)])
    # 0.8 x (100 - 20), of which the front holds 0.5 x (100 - 40).
    assert screen.room({FLOPS: 20.0}) == pytest.approx(0.8 * 80 - 0.5 * 60)
    assert screen.room({FLOPS: 60.0}) == pytest.approx(0.3 * 40)


def test_what_costs_more_than_the_best_on_the_front_or_the_reference_has_no_room() -> None:
    screen = Screen(BOTH, REFERENCE, front=[(0.8, 40.0)], seen=[(0.8, 40.0)])
    assert screen.room({FLOPS: 50.0}) == 0.0
    assert screen.room({FLOPS: 200.0}) == 0.0


def test_directions_are_kept_and_an_unknown_third_objective_is_left_out() -> None:
    ways = {"score": "min", FLOPS: "min", "decode_tokens_per_s": "max"}
    reference = {"score": 8.0, FLOPS: 100.0, "decode_tokens_per_s": 0.0}
    assert Screen(ways, reference, seen=[(6.0, 90.0, math.nan)]).room({FLOPS: 50.0}) == pytest.approx(2 * 50)
    assert Screen(ways, reference, seen=[(6.0, 90.0, 3.0)]).room({FLOPS: 50.0}) == pytest.approx(2 * 50 * 3)


def test_of_screened_proposals_the_cheapest_is_kept_while_nobody_has_a_score(
    toys: Registry, tmp_path: Path
) -> None:
    objectives = {"score": "max", "parameters": "min"}

    def proposed(screen: int) -> list[int]:
        file = StudyFile.read(study_data(objectives=objectives, search={"screen": screen, "trials": 6}))
        with Study.start(str(tmp_path / f"{screen}.db"), file, toys) as study:
            breeder = Breeder(study.repository, study.row.id, study.setting)
            for _ in range(5):
                breeder.add_next(
                    study.repository.candidates(study.row.id), study.read_candidates(), study.objectives
                )
            return [int(c.row.draws["width"]) for c in study.read_candidates()]

    starts = [8, 16]
    screened, plain = proposed(6), proposed(1)
    assert screened[:2] == plain[:2] == starts
    # Every second one is the sampler's alone; of the others the narrowest that is left.
    assert screened[2] == plain[2]
    left = sorted({8, 16, 24, 32, 40, 48} - set(screened[:3]))
    assert screened[3] == left[0]
    assert plain[3] != left[0]
