"""The ladder of the examples has enough sizes of two families, all of them within its cap."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from crossbreed.core.host import Registry
from crossbreed.core.search.plan import plan
from crossbreed.core.search.scaling import LEAST_SIZES
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve

LADDER = Path(__file__).parents[2] / "examples" / "ladder.yaml"


def test_two_families_have_a_size_more_than_a_law_takes(registry: Registry) -> None:
    file = StudyFile.load(LADDER)
    made = plan(resolve(file, registry))
    assert all(row.reason is None for row in made.rows)
    assert len(made.rows) == 1 + file.search.trial_limit()
    sizes = {
        family: {row.ledger.non_embedding_parameters for row in rows if row.ledger is not None}
        for family, rows in groupby(made.rows, lambda row: row.family)
    }
    assert set(sizes) == {"attention", "gated_deltanet"}
    assert all(len(found) == LEAST_SIZES + 1 for found in sizes.values())
    assert all(max(found) > 5 * min(found) for found in sizes.values())
