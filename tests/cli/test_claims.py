"""``crossbreed claims``: verdicts as tables and as JSON, from a record that adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.claims import papers
from tests.claims.tiny import PAPER
from tests.cli.conftest import Cli


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(papers.PAPERS, "tiny", PAPER)


def test_without_runs_it_answers_what_follows_from_the_ledger_and_says_what_the_rest_lacks(
    cli: Cli, tmp_path: Path
) -> None:
    found = cli("claims", "amor", "--show", "--json", "--record", str(tmp_path / "none.json"))
    data = found.json("claims")
    by_id = {claim["id"]: claim for claim in data["claims"]}
    assert by_id["C7"]["verdict"] == "supported"
    assert by_id["C1"]["verdict"] == "undecided"
    assert "no run of it" in by_id["C1"]["lacks"]
    assert by_id["C6t"]["lacks"] == "no GPU record of these times"
    assert not (tmp_path / "none.json").exists()


@pytest.mark.usefixtures("_tiny")
def test_runs_add_up_and_are_judged(cli: Cli, tmp_path: Path) -> None:
    record = str(tmp_path / "tiny.json")
    first = cli(
        "claims", "tiny", "--seeds", "1", "--workers", "1", "--most", "1", "--record", record, "--json"
    )
    data = first.json("claims")
    assert data["end"] == "done"
    assert data["runs"] == 3 * (2 + 1)
    assert data["claims"][0]["lacks"] == "an interval needs 3 seeds"
    again = cli("claims", "tiny", "--seeds", "3", "--workers", "1", "--record", record)
    assert "supported" in again.out
    assert "seed 2" in again.err
    assert "seed 0" not in again.err


def test_an_unknown_paper_is_bad_input(cli: Cli) -> None:
    found = cli("claims", "amore")
    assert found.code == 2
    assert "did you mean 'amor'" in found.err
