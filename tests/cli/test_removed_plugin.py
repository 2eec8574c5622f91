"""Results of a plugin that is not there any more: every command and page that reads still reads."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cli.conftest import Cli
from tests.core.search.material import Scripted, by_number, drive
from tests.core.search.test_growing import registry, study


def test_results_of_a_removed_plugin_are_read_without_it(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "results.db"
    setting = study(registry(True), 30)
    _, repository, number = drive(db, setting, Scripted())
    drawn = {n: row.draws.get("gate") for n, row in by_number(repository, number).items()}
    hashes = {n: row.hash for n, row in by_number(repository, number).items()}
    repository.close()
    front = cli("front", "tiny", "--all", "--db", db, "--json").json("front")
    assert {c["number"] for c in front["candidates"]} == set(drawn)
    assert front["growth"][-1]["hypervolume"] > 0
    shown = cli("study", "show", "tiny", "--db", db)
    assert shown.code == 0
    assert "Hypervolume of the front" in shown.out
    assert cli("study", "show", "tiny", "--db", db, "--json").json("study")["growth"] == front["growth"]
    coin = next(n for n, text in drawn.items() if text == "coin")
    of_coin = cli("show", hashes[coin][:12], "--db", db)
    assert of_coin.code == 0
    assert "gate: coin" in of_coin.out
    assert "unknown router 'coin'" in of_coin.err
    # Going on needs what the space or its runs name, and says so.
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(setting.file.as_data(), sort_keys=False))
    refused = cli("search", file, "--db", db, "--executor", "inline")
    assert refused.code == 2
    assert "'toy'" in refused.err
