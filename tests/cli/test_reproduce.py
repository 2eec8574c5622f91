"""A stored result trained again: equal bit for bit on one machine, and where it is not, the difference is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.host import Host
from crossbreed.core.search.reproduce import plan
from crossbreed.storage.repository import Repository
from tests.cli.conftest import Cli
from tests.cli.studies import write_study


def searched(cli: Cli, tmp_path: Path, **changes: object) -> None:
    study = write_study(tmp_path / "tiny.yaml", search={"trials": 0, "seeds": 1}, **changes)
    assert cli("search", study, "--executor", "inline").code == 0


def tamper(statement: str) -> None:
    with Repository.open("crossbreed.db") as repository, repository.database.writing() as session:
        session.execute(text(statement))


def test_a_run_of_several_rungs_is_reproduced_bit_for_bit(cli: Cli, tmp_path: Path) -> None:
    searched(cli, tmp_path, train={"tokens": 960, "rungs": 2, "batch": 8, "lr": 0.003, "log_every": 2})
    before = Path("crossbreed.db").read_bytes()
    result = cli("reproduce", "tiny/0/0", "--json")
    assert result.code == 0, result.err
    found = result.json("reproduce")
    assert found["equal"]
    assert found["losses"] >= 4
    assert found["metrics"] >= 3
    assert (found["losses_different"], found["metrics_different"], found["unlike"]) == (0, [], [])
    assert len(list(Path("reproduced/tiny-0-0").glob("rung-*"))) == 2
    assert Path("crossbreed.db").read_bytes() == before
    taken = cli("reproduce", "tiny/0/0")
    assert taken.code == 2
    assert "reproduced/tiny-0-0' exists already" in taken.err

    # Another number in the record is named with its step and its distance; the score with its own.
    tamper("UPDATE curve_point SET loss_nats = loss_nats + 0.25 WHERE step >= 4")
    tamper("UPDATE evaluation SET score = score + 0.125")
    result = cli("reproduce", "tiny/0/0", "--out", "again", "--json")
    assert result.code == 1
    found = result.json("reproduce")
    assert not found["equal"]
    assert found["first_difference"]["step"] == 4
    assert found["largest_difference"] == pytest.approx(0.25, abs=1e-3)
    assert [d["what"] for d in found["metrics_different"] if d["difference"] > 0.1] == ["score"]
    assert found["unlike"] == []
    words = cli("reproduce", "tiny/0/0", "--out", "third", "--threads", "2").out
    assert "losses differ, first at step " in words
    assert "Unlike the record: threads was 1, here it is 2." in words

    # It is repeated by the backends that it had.
    tamper("UPDATE run SET environment = json_set(environment, '$.speeds', json('[]'))")
    with Repository.open("crossbreed.db") as repository:
        device = (repository.run_by_key("tiny/0/0").environment or {})["device"]
        job = plan(repository, "tiny/0/0", Host.load(), Artefacts.at("fourth")).job
    assert (job.speeds, job.backend) == ({device: []}, "auto")

    # What cannot be repeated is bad input.
    tamper('UPDATE run SET identities = \'{"mixer:attention": "crossbreed 0.0.0"}\'')
    result = cli("reproduce", "tiny/0/0", "--out", "fourth")
    assert result.code == 2
    assert "was trained with mixer:attention of crossbreed 0.0.0" in result.err
    assert not Path("fourth").exists()


def test_a_run_without_a_curve_and_one_that_is_not_there_are_sentences(cli: Cli, db: Path) -> None:
    result = cli("reproduce", "small/0/0", "--db", db)
    assert result.code == 2
    assert "run small/0/0 is done and left no training curve; there is nothing to compare." in result.err
    assert "unknown run 'small/0/9'" in cli("reproduce", "small/0/9", "--db", db).err
