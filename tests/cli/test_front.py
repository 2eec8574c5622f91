from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crossbreed.storage.repository import Repository
from tests.cli.conftest import Cli
from tests.cli.stored import SPEEDS, store_study


def test_the_front_has_its_members_with_student_intervals(cli: Cli, db: Path) -> None:
    found = cli("front", "--db", db, "--json").json("front")
    assert found["study"] == "small"
    assert [c["number"] for c in found["candidates"]] == [
        0,
        1,
    ]  # best score first, the dominated one left out
    best = found["candidates"][0]
    half = 4.302653 * 0.01 / math.sqrt(3)  # t(2 degrees, 95%) times the standard error
    score = best["objectives"]["score"]
    assert score["mean"] == pytest.approx(0.91)
    assert (score["low"], score["high"]) == pytest.approx((0.91 - half, 0.91 + half), abs=1e-6)
    assert best["objectives"]["decode_tokens_per_s"]["values"] == list(SPEEDS[0])
    assert (best["confirmed"], best["seeds"]) == (True, [1, 2, 3])
    # The run that chose it is told apart from those that report it.
    assert [(s["seed"], s["score"]) for s in best["settings"]] == [(0, 0.99)]
    assert best["certificate"]["feasible"]
    assert best["ledger"]["parameters"] > 0
    assert found["speed_keys"]["decode_tokens_per_s"]["device"] == "a test (1 thread)"


def test_reading_what_is_stored_imports_no_torch(db: Path) -> None:
    code = (
        "import sys; from crossbreed.cli import run; "
        f"sys.exit(run(['front', '--db', {str(db)!r}]) or int('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Front of small" in done.stdout


def test_the_table_shows_score_speed_cost_and_residuals(cli: Cli, db: Path) -> None:
    result = cli("front", "small", "--db", db)
    assert result.code == 0
    assert result.err == ""
    line = next(line for line in result.out.splitlines() if "family 0" in line)
    for text in ("0.91 (0.885 to 0.935)", "1.01k", "KiB", "+0.00%"):
        assert text in line, text
    for heading in ("FLOPs/token", "tokens/s", "non-emb.", "memory"):
        assert heading in result.out, heading
    assert any(
        [w for w in line.split() if w in ("off", "by")] == ["off", "by"] * 3
        for line in result.out.splitlines()
    )
    assert "family 2" not in result.out
    assert "batch 1, 32 tokens, float32, a test (1 thread)" in result.out


def test_speeds_that_were_not_timed_alone_are_named(cli: Cli, tmp_path: Path) -> None:
    crowd = "other processes kept 1.0 of 2 cores busy, 1.0 of them 'python' (process 8)"
    store_study(tmp_path / "crowded.db", neighbours=crowd)
    shown = cli("front", "--db", tmp_path / "crowded.db").out
    for number in (0, 1):
        assert f"Not timed alone: candidate {number}, seed 1, decode tokens/s: {crowd}." in shown
    assert shown.count("Not timed alone") == 2
    found = cli("front", "--db", tmp_path / "crowded.db", "--json").json("front")
    assert [c["neighbours"] for c in found["candidates"]] == [
        [{"seed": 1, "metric": "decode_tokens_per_s", "neighbours": crowd}]
    ] * 2


def test_at_80_columns_costs_stand_in_a_table_of_their_own_and_no_number_breaks(
    cli: Cli, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = cli("front", "small", "--db", db)
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 80
    objectives = next(line for line in lines if "family 0" in line)
    assert "0.91 (0.885 to 0.935)" in objectives
    assert "1.01k" in objectives
    costs = next(line for line in lines if line.split()[:1] == ["0"] and "family" not in line)
    assert "KiB" in costs
    assert costs.split().count("+0.00%") == 3


def test_all_shows_dominated_and_infeasible_candidates_too(cli: Cli, db: Path) -> None:
    found = cli("front", "--db", db, "--all", "--json").json("front")
    assert {c["number"]: c["on_front"] for c in found["candidates"]} == {0: True, 1: True, 2: False, 3: False}
    infeasible = next(c for c in found["candidates"] if c["state"] == "infeasible")
    assert infeasible["objectives"]["score"] == {"mean": None, "low": None, "high": None, "values": []}
    assert "cannot rise" in infeasible["cause"]
    lines = cli("front", "--db", db, "--all").out.splitlines()
    assert sum("*" in line and "family" in line for line in lines) == 2


def test_a_table_that_has_room_names_candidates_by_hashes_that_commands_take(
    cli: Cli, db: Path, hashes: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f" {hashes[1][:8]}" in cli("front", "--db", db).out
    assert cli("show", hashes[1][:8], "--db", db).code == 0
    monkeypatch.setenv("COLUMNS", "125")
    assert hashes[1][:8] not in cli("front", "--db", db).out


def test_members_show_how_surely_they_stand_there(cli: Cli, db: Path) -> None:
    found = cli("front", "--db", db, "--all", "--json").json("front")
    surely = {c["number"]: c["front_probability"] for c in found["candidates"]}
    assert surely[0] > 0.9
    assert surely[1] > 0.9
    assert surely[2] < 0.1
    assert surely[3] is None
    assert found["divergence"]["family 0"] == pytest.approx(
        {"diverged": 0, "runs": 4, "rate": 0.0, "low": 0.0, "high": 0.4899}, abs=1e-4
    )
    line = next(line for line in cli("front", "--db", db).out.splitlines() if "family 0" in line)
    assert re.search(r" 3 +(>?\d\d%|100%) ", line)


def test_families_whose_runs_diverged_are_named_with_their_rate(cli: Cli, db: Path) -> None:
    with Repository.open(str(db)) as repository:
        trial = repository.trials(repository.open_study("small").id)[1]
        identities = {"mixer:attention": "crossbreed 0.1.0"}
        run = repository.add_run(trial.id, 9, recipe={}, identities=identities, role="report")
        lease = repository.lease_run(run.id, "a test", seconds=60)
        assert lease is not None
        repository.record_finished(run.id, lease, "diverged", cause="loss was nan at step 3 of 9")
    found = cli("front", "--db", db, "--json").json("front")
    assert next(iter(found["divergence"])) == "family 1"
    member = next(c for c in found["candidates"] if c["number"] == 1)
    assert (member["divergence"]["diverged"], member["divergence"]["runs"]) == (1, 5)
    text = cli("front", "--db", db).out
    assert "family 1: 1 of 5 runs diverged (20%, 95% interval 4% to 62%)." in text
    # What failed says why, under the table it stands in.
    assert "candidate 1, seed 9 diverged: loss was nan at step 3 of 9" in text


def test_an_unknown_study_names_the_nearest(cli: Cli, db: Path) -> None:
    result = cli("front", "smal", "--db", db)
    assert result.code == 2
    assert "unknown study 'smal'; did you mean 'small'?" in result.err


def test_no_database_is_a_sentence(cli: Cli) -> None:
    result = cli("front", "--db", "nowhere.db")
    assert result.code == 2
    assert "there is no database at" in result.err
    assert "nowhere.db" in result.err


def test_studies_are_listed_and_shown(cli: Cli, db: Path) -> None:
    (listed,) = cli("study", "list", "--db", db, "--json").json("studies")["studies"]
    assert listed["name"] == "small"
    assert listed["trials"] == {"done": 3, "infeasible": 1}
    assert listed["driver"] is None
    shown = cli("study", "show", "small", "--db", db, "--json").json("study")
    assert [c["number"] for c in shown["candidates"]] == [0, 1, 2, 3]
    assert shown["spec"]["task"]["name"] == "recall"
    text = cli("study", "show", "small", "--db", db).out
    assert "dense recurrent" in text
    assert "cannot rise" in text
    assert "small" in cli("study", "list", "--db", db).out


def test_a_hash_prefix_shows_the_stored_genome(cli: Cli, db: Path, hashes: dict[int, str]) -> None:
    shown = cli("show", hashes[0][:10], "--db", db, "--json").json("show")
    assert shown["hash"] == hashes[0]
    result = cli("show", "0123456789", "--db", db)
    assert result.code == 2
    assert "unknown architecture '0123456789'" in result.err


def test_reading_changes_no_byte_of_the_database(cli: Cli, db: Path) -> None:
    before = db.read_bytes()
    for command in (["front"], ["study", "list"], ["study", "show", "small"], ["doctor"]):
        assert cli(*command, "--db", db).code == 0
    assert db.read_bytes() == before


def test_realised_residuals_stand_in_brackets_where_routing_changed_them(cli: Cli, db: Path) -> None:
    with Repository.open(str(db)) as repository:
        trial = repository.trials(repository.open_study("small").id)[0]
        certificate = dict(trial.certificate or {})
        flops, *others = certificate["quantities"]
        certificate["quantities"] = [{**flops, "residual": 0.011}, *others]
        identities = {"mixer:attention": "crossbreed 0.1.0"}
        run = repository.add_run(trial.id, 9, recipe={}, identities=identities, role="report")
        lease = repository.lease_run(run.id, "a test", seconds=60)
        assert lease is not None
        repository.record_evaluation(
            run.id, lease, "own", tokens=32, metrics={}, score=0.9, rows=1, certificate=certificate
        )
        repository.record_finished(run.id, lease, "done")
    line = next(line for line in cli("front", "--db", db).out.splitlines() if "family 0" in line)
    assert "+0.00% (+1.10%)" in line
    (best, *_) = cli("front", "--db", db, "--json").json("front")["candidates"]
    assert best["realised_residuals"]["training_flops_per_token"] == 0.011
