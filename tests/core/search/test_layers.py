from __future__ import annotations

import pytest

from crossbreed.core.search.candidates import Candidate, Objectives
from crossbreed.core.search.layers import differences, grouped, layer, obstacles, routers_of
from crossbreed.core.search.study_file import StudyFile
from crossbreed.storage.rows import CandidateRow, SeedRow

SPEED = "decode_tokens_per_s"
KEY = ("decode", 1, 32, "float32", "cpu", "best", False)
OBJECTIVES = Objectives({"score": "max", SPEED: "max"}, {SPEED: KEY})
FILE = {
    "schema": 1,
    "name": "a",
    "task": {"name": "recall", "params": {"length": 32}},
    "budget": {"values": {"parameters": 1000}, "match": {"parameters": "2%"}, "d_model": 8},
    "train": {"tokens": 100},
}


def _candidate(number: int, score: float, speed: float, family: str = "a", *parts: str) -> Candidate:
    ledger = {"parts": [{"site": site, "name": "learned"} for site in parts]}
    seed = SeedRow(number, 0, "done", None, 1, {})
    row = CandidateRow(number, number, "f", family, "start", {}, "done", None, None, ledger, (seed,))
    return Candidate(row, (seed,), {}, {"score": score, SPEED: speed}, {}, counted=(seed,))


def test_each_group_has_its_own_front_and_volume() -> None:
    found = [_candidate(0, 1.0, 10.0), _candidate(1, 0.5, 20.0, "b"), _candidate(2, 0.4, 15.0, "b")]
    layers = grouped(found, lambda c: c.row.family, OBJECTIVES, {"score": 0.0, SPEED: 5.0})
    assert [(each.name, [c.row.number for c in each.front], each.volume) for each in layers] == [
        ("a", [0], 5.0),
        ("b", [1], 7.5),
    ]
    assert layer("all", layers[0].candidates, OBJECTIVES, None).volume is None


def test_routers_are_told_by_their_kind_of_site() -> None:
    assert routers_of(_candidate(0, 1, 1, "a", "0.0.gate", "1.0.gate", "1.halt", "0.0.0")) == (
        "gate:learned halt:learned"
    )
    assert routers_of(_candidate(0, 1, 1, "a", "mode")) == "mode:learned"
    assert routers_of(_candidate(0, 1, 1, "a", "0.0.0")) == "no router"


@pytest.mark.parametrize(
    ("changed", "keys", "clause"),
    [
        ({}, {SPEED: [KEY]}, None),
        ({"train": {"tokens": 200}}, {SPEED: [KEY]}, None),
        ({"objectives": {"score": "max"}}, {}, "its objectives are score max"),
        ({"task": {"name": "copy"}}, {SPEED: [KEY]}, "its task is copy, not recall"),
        ({"task": {"name": "recall", "params": {"length": 64}}}, {SPEED: [KEY]}, "its task has another length"),
        ({}, {}, f"it has not measured {SPEED}"),
        ({}, {SPEED: [(*KEY[:4], "H200", *KEY[5:])]}, f"it has measured {SPEED} under device H200 instead of cpu"),
        (
            {},
            {SPEED: [("decode", 8, 64, *KEY[3:])]},
            f"it has measured {SPEED} under batch 8 instead of 1, length 64 instead of 32",
        ),
    ],
)  # fmt: skip
def test_only_studies_that_were_judged_and_timed_alike_are_overlaid(
    changed: dict, keys: dict, clause: str | None
) -> None:
    mine, theirs = StudyFile.read(FILE), StudyFile.read({**FILE, "name": "b", **changed})
    assert obstacles(mine, OBJECTIVES, theirs, keys) == ([] if clause is None else [clause])


def test_other_items_forbid_an_overlay_and_another_recipe_is_only_said() -> None:
    mine = StudyFile.read(FILE)
    assert obstacles(mine, OBJECTIVES, mine, {SPEED: [KEY]}, same_items=False) == [
        "its task has other evaluation items"
    ]
    assert differences(mine, StudyFile.read({**FILE, "train": {"tokens": 200}})) == ["recipe of training"]
