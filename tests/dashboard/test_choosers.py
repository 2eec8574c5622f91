"""What choosers list of studies of any size."""

from __future__ import annotations

from crossbreed.core.search.candidates import Objectives, candidates_of
from crossbreed.dashboard.choosers import LISTED, _listed, _numbers, _others
from crossbreed.dashboard.follower import Results
from crossbreed.storage.rows import CandidateRow


def _results(count: int) -> Results:
    rows = (
        CandidateRow(n, n, str(n), "attention", "sampler", {}, "queued", None, None, None, ())
        for n in range(count)
    )
    objectives = Objectives({"score": "max"})
    return Results(tuple(c for row in rows for c in candidates_of(row, objectives)), objectives)


def test_small_studies_are_listed_whole_and_of_large_ones_what_is_chosen_comes_first() -> None:
    assert _listed(_results(LISTED), [7]) == list(range(LISTED))
    assert _others(_results(LISTED), range(LISTED)) is None
    many = _results(LISTED + 50)
    listed = _listed(many, [230, 3])
    assert listed == [230, 3, *(n for n in range(LISTED) if n != 3)][:LISTED]
    assert _others(many, listed) == "50 more candidates are not listed; type a number."


def test_what_is_typed_and_is_no_number_is_left_out() -> None:
    assert _numbers([5, "12", "front", None, "5", "-3", "²"]) == [5, 12]
