"""Router analytics from a search to the screen."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from crossbreed.cli import run
from crossbreed.storage.repository import Repository
from tests.cli.conftest import Cli
from tests.cli.studies import write_study

READERS = {"mixer": "multi_mixer", "params": {"readers": ["mamba2", "attention"], "heads": 2, "head_size": 8}}
EXPERTS = {"mixer": "experts", "params": {"experts": 4, "hidden": 16, "top_k": 2}}
ROUTED: dict[str, Any] = {
    "d_model": 16,
    "mode_router": {"name": "segment_random", "params": {"segment": 4, "probability": 0.5}},
    "stages": [
        {"blocks": [{"sublayers": [READERS]}]},
        {
            "blocks": [{"sublayers": [EXPERTS], "gate": {"name": "entropy_gate"}}],
            "depth": {"name": "recurrent", "repeats": 3},
        },
    ],
}
"""An Oryx block, then experts run three times over, each time behind an entropy gate: something of everything."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the studies ``routed`` and ``plain`` were searched: one run each, that of the reference."""
    folder = tmp_path_factory.mktemp("routed")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        budget = {"reference": ROUTED, "match": {}, "cap": {"memory_bytes": "90%"}}
        search = {"trials": 0, "forced_rates": []}
        for name, changes in {"routed": {"budget": budget}, "plain": {}}.items():
            file = write_study(folder / f"{name}.yaml", name=name, search=search, **changes)
            assert run(["search", str(file), "--executor", "inline", "--device", "cpu"]) == 0
    return folder


@pytest.fixture
def db(searched: Path, tmp_path: Path) -> Path:
    """A copy of that folder's database with its checkpoints."""
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    return tmp_path / "crossbreed.db"


def test_a_searched_run_shows_the_rates_that_its_evaluation_realised(cli: Cli, db: Path) -> None:
    result = cli("routers", "routed/0/0", "--json")
    found = result.json("routers")
    assert result.err == ""  # everything was found when the run ended
    with Repository.open(str(db), read_only=True) as repository:
        study = repository.open_study("routed")
        realised = repository.trial_detail(study.id, 0).runs[0].points["own"].rates
    assert (found["run"], found["point"], found["trained_tokens"], found["rows"]) == (
        "routed/0/0",
        "own",
        960,
        32,
    )
    shares = {site["site"]: site["shares"] for site in found["decisions"]["sites"]}
    assert list(shares) == ["1.0.0.gate", "1.0.1.gate", "1.0.2.gate", "mode"]
    assert shares == found["realised"] == realised
    classes = [entry["class"] for entry in found["decisions"]["sites"][0]["classes"]]
    assert classes == ["key", "value", "filler", "query"]
    assert found["agreement"]["flips"] == 0
    assert found["switches"]["choices"] == ["mamba2", "attention"]
    (pool,) = found["experts"]["pools"]
    # Only tokens whose gate fired reach an expert.
    fired = [round(site["asked"] * site["shares"][1]) for site in found["decisions"]["sites"][:3]]
    assert pool["slots"] == fired
    assert found["depth_attention"] is None


def test_the_tables_show_every_kind_and_stored_rates_beside_their_own(cli: Cli, db: Path) -> None:
    result = cli("routers", "routed/0/0")
    assert result.code == 0
    for words in (
        "Routers of routed/0/0 at own",
        "32 evaluation rows, 384 tokens, after 960 tokens of training",
        "By layer, all depths",
        "By token class",
        "Along the text",
        "Choice and loss",
        "Entropy, choice and loss",
        "Full forward and one-token decode",
        "Loss around a switch at position 6",
        "mamba2 to attention",
        "Experts by depth",
        "Experts used at many depths",
    ):
        assert words in result.out, words
    row = next(
        line
        for line in result.out.splitlines()
        if line.strip().startswith("mode") and "segment_random" in line
    )
    # "0.1234 / 0.8766" twice: of the rows looked at, and of all rows.
    shares = row.split()[-6:]
    assert shares[:3] == shares[3:]


def test_what_is_missing_is_found_from_the_checkpoint_and_kept(cli: Cli, db: Path) -> None:
    first = cli("routers", "routed/0/0", "--point", "forced:0.5", "--json")
    assert "Looking at routed/0/0 at forced:0.5" in first.err
    found = first.json("routers")
    assert {tuple(site["shares"]) for site in found["decisions"]["sites"]} == {(0.5, 0.5)}
    assert found["realised"] == {}  # the search judged no such point
    again = cli("routers", "routed/0/0", "--point", "forced:0.5", "--json")
    assert again.err == ""
    assert again.json("routers") == found


def test_more_rows_and_another_switch_are_looked_at_anew(cli: Cli, db: Path) -> None:
    few = cli("routers", "routed/0/0", "--rows", "5", "--switch", "3", "--json").json("routers")
    assert (few["rows"], few["switches"]["position"]) == (5, 3)
    assert few["realised"] != {site["site"]: site["shares"] for site in few["decisions"]["sites"]}
    assert cli("routers", "routed/0/0", "--json").json("routers") == few
    assert cli("routers", "routed/0/0", "--rows", "999", "--json").json("routers")["rows"] == 32


def test_without_its_checkpoint_a_run_shows_what_is_stored_and_says_what_is_missing(
    cli: Cli, db: Path
) -> None:
    (file,) = db.parent.glob("**/routed/0/0/rung-0.*")
    file.unlink()
    assert cli("routers", "routed/0/0").code == 0
    result = cli("routers", "routed/0/0", "--point", "forced:1")
    assert result.code == 2
    assert "the checkpoint of run routed/0/0 is missing" in result.err
    assert str(file.name) in result.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["routed/0"], "run 'routed/0' breaks the rule: study/number/seed"),
        (["rooted/0/0"], "unknown study 'rooted'; did you mean 'routed'?"),
        (["routed/0/7"], "unknown run 'routed/0/7'; did you mean 'routed/0/1'?"),
        (["routed/0/0", "--point", "free"], "unknown operating point 'free'"),
        (["routed/0/0", "--point", "forced:2"], "unknown operating point 'forced:2'"),
        (
            ["routed/0/0", "--switch", "12"],
            "the switch position is 12; it must lie inside the text, from 1 to 11",
        ),
        (["routed/0/0", "--rows", "3", "--device", "tpu"], "device 'tpu'"),
        (["plain/0/0"], "has no routers, no experts and no attention over depths"),
        (["plain/0/0", "--point", "forced:0.5"], "says nothing about run plain/0/0"),
        (["plain/0/0", "--point", "schedule:0=attention"], "has no mode router"),
    ],
)
def test_what_cannot_be_looked_at_is_one_sentence(
    cli: Cli, db: Path, arguments: list[str], sentence: str
) -> None:
    result = cli("routers", *arguments)
    assert result.code == 2, result.err
    assert sentence in result.err
    assert result.out == ""
    assert "Traceback" not in result.err


def test_what_a_gate_finds_is_a_table_where_the_task_gives_labels() -> None:
    from crossbreed.cli.router_tables import _labels

    entry = {"label": "recall", "classes": ["answer"], "share": 0.25, "precision": 0.5, "recall": None}
    (made,) = _labels({"sites": [{"site": "0.0.gate", "labels": [entry, {**entry, "label": "irreducible"}]}]})
    columns = [list(column.cells) for column in made.columns]
    assert columns == [
        ["0.0.gate", ""],
        ["recall", "irreducible"],
        ["0.2500", "0.2500"],
        ["0.5000", "0.5000"],
        ["-", "-"],
    ]
    assert list(_labels({"sites": [{"site": "0.0.gate", "labels": []}]})) == []
