from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from sqlalchemy import text

from crossbreed.cli.search import resume_command
from crossbreed.core.errors import StorageError
from crossbreed.storage.database import Database
from crossbreed.storage.drivers import Driver
from crossbreed.storage.repository import Repository
from crossbreed.storage.rows import RunRow
from tests.cli.conftest import Cli
from tests.cli.studies import REFERENCE, TINY, write_study


def test_a_search_ends_with_its_front_and_run_again_trains_nothing_more(cli: Cli, tmp_path: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml")
    first = cli("search", study, "--executor", "inline")
    assert first.code == 0, first.err
    assert "Front of tiny" in first.out
    for words in (
        "score",
        "tokens/s",
        "parameters",
        "FLOPs/token",
        "memory",
        "off by",
    ):
        assert words in first.out, words
    assert "crossbreed dashboard --db ./crossbreed.db" in first.out
    assert "runs:" in first.err
    with Repository.open("crossbreed.db", read_only=True) as repository:
        before = repository.runs(repository.open_study("tiny").id)
    assert {run.state for run in before} == {"done"}
    again = cli("search", study, "--executor", "inline", "--json").json("search")
    assert again["end"] == "done"
    assert {c["number"] for c in again["candidates"]} == {run.number for run in before}
    assert any(c["on_front"] for c in again["candidates"])
    with Repository.open("crossbreed.db", read_only=True) as repository:
        assert repository.runs(repository.open_study("tiny").id) == before


def test_a_plan_trains_nothing_and_takes_in_a_plugin_file(
    cli: Cli, tmp_path: Path, router_file: Path
) -> None:
    study = write_study(tmp_path / "tiny.yaml", space={"routers": "all"})
    plain = cli("search", study, "--plan", "--json").json("plan")
    planned = cli("search", study, "--plan", "--json", "--plugin", router_file).json("plan")
    assert not any("every_third" in family for family in plain["families"])
    assert any("every_third" in family for family in planned["families"])
    assert planned["candidates"][0]["origin"] == "reference"
    assert planned["candidates"][0]["certificate"]["feasible"]
    assert 0 < planned["seconds"][0] <= planned["seconds"][1]
    assert 0 < planned["disk_bytes"][0] <= planned["disk_bytes"][1]
    assert not Path("crossbreed.db").exists()
    table = cli("search", study, "--plan").out
    assert "feasible" in table
    assert "of checkpoints" in table


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"space": {"mixers": ["atention", "swiglu"]}},
            "unknown mixer 'atention'; did you mean 'attention'?",
        ),
        ({"task": {"name": "recal"}}, "unknown task 'recal'; did you mean 'recall'?"),
        ({"task": {"params": {"pairs": 0}}}, "pairs must be at least 1, got 0"),
        ({"task": {"params": {"pears": 2}}}, "unknown key 'pears'; did you mean 'pairs'?"),
        ({"train": {"lr": -1.0}}, "train.lr"),
        ({"serch": {}}, "unknown key 'serch'; did you mean 'search'?"),
        ({"objectives": {"scor": "max"}}, "unknown objective 'scor'; did you mean 'score'?"),
        (
            {"budget": {"match": {"parametrs": "2%"}}},
            "unknown quantity 'parametrs'; did you mean 'parameters'?",
        ),
        ({"budget": {"reference": "nowhere.yaml"}}, "nowhere.yaml' does not exist"),
        ({"name": "a/b"}, "a study's name is letters"),
    ],
)
def test_a_wrong_study_file_is_one_sentence_and_leaves_no_database(
    cli: Cli, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    result = cli("search", write_study(tmp_path / "wrong.yaml", **changes), "--executor", "inline")
    assert result.code == 2, result.err
    assert sentence in result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert not Path("crossbreed.db").exists()


def test_missing_and_unreadable_files_are_named(cli: Cli, tmp_path: Path) -> None:
    missing = cli("search", "nowhere.yaml")
    assert (missing.code, missing.err) == (2, "crossbreed: study file 'nowhere.yaml' does not exist.\n")
    (tmp_path / "broken.yaml").write_text("name: [")
    broken = cli("search", "broken.yaml")
    assert broken.code == 2
    assert "is not valid YAML at line 1" in broken.err


def test_plugin_files_that_are_missing_or_raise_stop_before_anything(cli: Cli, tmp_path: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml")
    missing = cli("search", study, "--plugin", "nowhere.py")
    assert missing.code == 2
    assert "plugin file 'nowhere.py' does not exist" in missing.err
    (tmp_path / "raises.py").write_text("import os\nraise RuntimeError('no licence')")
    raises = cli("search", study, "--plugin", "raises.py")
    assert raises.code == 2
    assert "plugin 'raises.py' raised RuntimeError at import (line 2): no licence" in raises.err
    assert not Path("crossbreed.db").exists()


def test_a_budget_nobody_can_meet_is_exit_2_with_the_nearest_candidate(cli: Cli, tmp_path: Path) -> None:
    budget = {
        "match": {"training_flops_per_token": "1%"},
        "values": {"training_flops_per_token": 1.0},
        "d_model": 16,
    }
    study = write_study(tmp_path / "absurd.yaml")
    data = {**TINY, "name": "absurd", "budget": budget}
    study.write_text(yaml.safe_dump(data))
    result = cli("search", study, "--executor", "inline")
    assert result.code == 2
    assert "no candidate meets the budget; the nearest is" in result.err
    assert "training_flops_per_token" in result.err
    planned = cli("search", study, "--plan", "--json")
    assert planned.code == 2
    assert planned.json("plan")["families"] == []


def test_what_a_plugin_prints_is_no_data(cli: Cli, tmp_path: Path, router_file: Path) -> None:
    said = "            print('every third')\n            return Decision("
    router_file.write_text(router_file.read_text().replace("            return Decision(", said))
    gated = {
        "reference": {
            **REFERENCE,
            "stages": [
                {"blocks": [{**REFERENCE["stages"][0]["blocks"][0], "gate": {"name": "every_third"}}]}
            ],
        }
    }
    study = write_study(tmp_path / "tiny.yaml", budget={**gated, "match": {}}, search={"trials": 0})
    plugin = ("--plugin", router_file)
    found = cli("search", study, "--executor", "inline", "--json", *plugin)
    assert found.json("search")["end"] == "done", found.err
    assert "every third" in found.err
    again = cli("reproduce", "tiny/0/0", "--json", *plugin)
    assert again.json("reproduce")["equal"]
    assert "every third" in again.err


@pytest.mark.parametrize("place", ["/proc/crossbreed.db", "a_file/crossbreed.db"])
def test_a_place_that_cannot_be_written_is_named(cli: Cli, tmp_path: Path, place: str) -> None:
    (tmp_path / "a_file").write_text("")
    result = cli("search", write_study(tmp_path / "tiny.yaml"), "--executor", "inline", "--db", place)
    assert result.code == 2
    assert "cannot be" in result.err
    assert place.rsplit("/", 1)[0] in result.err


def test_a_database_from_a_newer_version_is_refused_and_kept(cli: Cli, tmp_path: Path, db: Path) -> None:
    with Database.open(str(db)) as database, database.writing() as session:
        session.execute(text("UPDATE crossbreed_version SET version_num = '9999'"))
    before = db.read_bytes()
    result = cli("search", write_study(tmp_path / "tiny.yaml"), "--executor", "inline", "--db", db)
    assert result.code == 2
    assert "revision '9999', newer than this crossbreed" in result.err
    assert db.read_bytes() == before


def test_a_study_that_is_running_elsewhere_is_refused(cli: Cli, tmp_path: Path, db: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        here, process = Driver.here(), psutil.Process(other.pid)
        driver = Driver(here.host, here.boot, other.pid, process.create_time())
        study = write_study(tmp_path / "tiny.yaml")
        with Repository.open(str(db)) as repository:
            row = repository.create_study("tiny", yaml.safe_load(study.read_text()))
            repository.acquire_driver_lease(row.id, driver)
        result = cli("search", study, "--executor", "inline", "--db", db)
        listed = cli("study", "list", "--db", db, "--json").json("studies")["studies"]
        other.kill()
    assert result.code == 2
    assert f"is being driven by process {other.pid} on this host" in result.err
    assert result.out == ""
    (driver,) = [s["driver"] for s in listed if s["name"] == "tiny"]
    assert driver == {"host": here.host, "pid": other.pid, "paused": False}


def test_a_study_needs_its_plugin_files_again(cli: Cli, tmp_path: Path, router_file: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml", search={"trials": 0})
    assert cli("search", study, "--executor", "inline", "--plugin", router_file).code == 0
    result = cli("search", study, "--executor", "inline")
    assert result.code == 2
    assert f"uses plugin file '{router_file}'" in result.err
    assert f"--plugin {router_file}" in result.err


def test_another_task_under_the_same_name_is_refused(cli: Cli, tmp_path: Path) -> None:
    first = write_study(tmp_path / "tiny.yaml", search={"trials": 0})
    assert cli("search", first, "--executor", "inline").code == 0
    other = write_study(tmp_path / "other.yaml", task={"params": {"pairs": 3, "length": 12, "vocab": 16}})
    result = cli("search", other, "--executor", "inline")
    assert result.code == 2
    assert "study 'tiny' exists with another 'task' section" in result.err


def test_an_interrupted_search_says_how_to_go_on_and_goes_on(cli: Cli, tmp_path: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml", train={"tokens": 96 * 4000}, search={"trials": 0})
    command, db = ["search", str(study), "--executor", "inline", "--db", "my.db"], tmp_path / "my.db"
    first = subprocess.Popen(
        [sys.executable, "-m", "crossbreed", *command],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _interrupt(first.pid, db, beyond=0, over=lambda: first.poll() is not None)
    out, err = first.communicate(timeout=60)
    assert (first.returncode, out) == (130, ""), err
    assert f"To go on: crossbreed search {study} --db my.db --executor inline" in err
    assert "Traceback" not in err
    reached = _step(db)
    assert _run(db).state == "preempted"
    # A search takes the signal over and gives it back; nothing else here is to hear of it.
    before, over = signal.signal(signal.SIGINT, signal.SIG_IGN), threading.Event()
    watch = threading.Thread(target=_interrupt, args=(os.getpid(), db, reached, over.is_set))
    watch.start()
    try:
        second = cli(*command)
    finally:
        over.set()
        watch.join()
        signal.signal(signal.SIGINT, before)
    assert second.code == 130, second.err
    assert (_run(db).environment or {})["resumed_step"] >= reached > 0
    assert _step(db) > reached


def _interrupt(process: int, db: Path, beyond: int, over: Callable[[], bool]) -> None:
    """Press Ctrl-C once a search's curve goes beyond a step, unless it is over before."""
    while _step(db) <= beyond:
        if over():
            return
        time.sleep(0.1)
    os.kill(process, signal.SIGINT)


def _run(db: Path) -> RunRow:
    with Repository.open(str(db), read_only=True) as repository:
        (run,) = repository.runs(repository.open_study("tiny").id)
        return run


def _step(db: Path) -> int:
    """The last step on the study's only curve; 0 before there is one."""
    try:
        with Repository.open(str(db), read_only=True) as repository:
            study = repository.find_study("tiny")
            runs = [] if study is None else repository.runs(study.id)
            return max((point.step for run in runs for point in repository.curve(run.id)), default=0)
    except StorageError as error:
        if "is empty" in str(error) or "there is no database" in str(error):
            return 0
        raise


def test_the_resume_command_repeats_what_was_given_but_no_password() -> None:
    command = resume_command(
        ["search", "my study.yaml"],
        "postgresql://me:secret@host/results",
        [Path("a.py"), Path("b.py")],
        executor="ray",
        address="auto",
        workers=4,
        device=None,
        deterministic=True,
        max_hours=None,
    )
    assert command == (
        "crossbreed search 'my study.yaml' --db 'postgresql://me:***@host/results' --plugin a.py --plugin b.py "
        "--ray-address auto --workers 4 --deterministic"
    )
