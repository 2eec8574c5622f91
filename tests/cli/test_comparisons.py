"""``study compare`` and ``study genes`` over stored results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_stored_candidates_are_compared_on_shared_seeds(cli: Cli, db: Path, hashes: dict[int, str]) -> None:
    found = cli("study", "compare", "small", "0", hashes[1][:10], "--db", db, "--json").json("study_compare")
    score, speed = found["differences"]
    assert (score["objective"], score["first"], score["second"], score["seeds"]) == ("score", 0, 1, [1, 2, 3])
    assert score["mean"] == pytest.approx(0.19)
    assert score["low"] < 0.19 < score["high"]
    assert score["better"] == 0
    assert speed["better"] == 1
    text = cli("study", "compare", "small", "0", "1", "--db", db).out
    assert "score: #0 is better than #1 over 3 shared seeds." in text
    assert "+0.19 (+0.165 to +0.215)" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("0",), "a comparison needs two candidates, got 0."),
        (("0", "#0"), "a comparison needs two candidates, got 0, #0."),
        (("0", "9"), "candidate '9' is not in this study; name one by its number (0 to 3)"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    cli: Cli, db: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    result = cli("study", "compare", "small", *arguments, "--db", db)
    assert result.code == 2
    assert sentence in result.err


def test_a_candidate_without_runs_says_so(cli: Cli, db: Path) -> None:
    assert (
        "#0 and #3 share no seed: nothing can be said."
        in cli("study", "compare", "small", "0", "3", "--db", db).out
    )


def test_three_candidates_have_no_gene_that_can_be_judged(cli: Cli, db: Path) -> None:
    found = cli("study", "genes", "small", "--db", db, "--json").json("study_genes")
    assert found["effects"] == []
    assert len(found["untested"]) == 1
    assert found["untested"][0].endswith("params.hidden")
    text = cli("study", "genes", "small", "--db", db).out
    assert "No gene can be judged" in text
    assert "Fewer than three such pairs: " in text
