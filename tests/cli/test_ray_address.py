"""A cluster of several nodes that is already there: joined, used, commanded, and left running."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossbreed.storage.repository import Repository
from tests.cli.conftest import in_process
from tests.cli.studies import write_study
from tests.cli.test_orders import look, until
from tests.clusters import Cluster, free_port, listens, ray_cluster, tree


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ray_cluster(tmp_path) as cluster:
        yield cluster


def begin(study: Path, db: Path, cluster: Cluster, *more: object) -> subprocess.Popen[str]:
    words = [study, "--db", db, "--ray-address", cluster.address, "--device", "cpu", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "crossbreed", "search", *map(str, words)],
        env={**os.environ, **cluster.environment, "OMP_NUM_THREADS": "1"},
        cwd=study.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_of_two_nodes_is_used_as_asked_and_left_running(cluster: Cluster, tmp_path: Path) -> None:
    other, asked = cluster.add(), cluster.add("--resources", '{"quiet": 1}')
    (tmp_path / "workers.yaml").write_text("resources: {quiet: 0.1}\n")
    # Long enough that it never ends by itself here.
    study = write_study(tmp_path / "tiny.yaml", train={"tokens": 4_000_000}, search={"trials": 0})
    db = tmp_path / "study.db"
    search = begin(study, db, cluster, "--workers", 1, "--ray-resources", tmp_path / "workers.yaml")
    until(lambda: look(str(db))[1] > 0, "training", search)
    at_work = [" ".join(p.cmdline()).startswith("ray::Worker") for p in tree(asked.pid)]
    assert sum(at_work) == 1
    assert not any(" ".join(p.cmdline()).startswith("ray::Worker") for p in tree(other.pid))

    # Orders of another process reach the workers, wherever they are.
    def order(word: str) -> None:
        given = in_process("study", word, "tiny", "--db", db, "--json", cwd=tmp_path)
        assert given.json("study_order")["heard"]

    order("pause")
    until(lambda: look(str(db))[0] == {"preempted": 1}, "the pause", search)
    reached = look(str(db))[1]
    order("resume")
    until(lambda: look(str(db))[1] > reached, "training after the pause", search)
    order("stop")
    _, err = search.communicate(timeout=60)
    assert (search.returncode, look(str(db))[0]) == (0, {"preempted": 1}), err
    assert listens(cluster.port)
    assert not any(" ".join(p.cmdline()).startswith("ray::Worker") for p in tree(asked.pid))

    # Without an address a search starts a cluster of its own, although this one runs beside it.
    short = write_study(tmp_path / "short.yaml")
    alone = in_process("search", short, "--db", tmp_path / "alone.db", "--device", "cpu", cwd=tmp_path)
    assert alone.code == 0, alone.err
    words = (
        "search",
        short,
        "--db",
        tmp_path / "other.db",
        "--ray-address",
        cluster.address,
        "--device",
        "cpu",
    )
    wrong = {**cluster.environment, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    refused = in_process(*words, cwd=tmp_path, environment=wrong)
    assert refused.code == 2
    assert "RAY_AUTH_MODE=token" in refused.err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_of_a_cluster_is_reproduced_bit_for_bit_there_and_here(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.add()
    study, db = write_study(tmp_path / "tiny.yaml", search={"trials": 0}), tmp_path / "study.db"
    search = begin(study, db, cluster, "--workers", 1, "--json")
    _, err = search.communicate(timeout=200)
    assert search.returncode == 0, err
    for place in (("--executor", "ray", "--ray-address", cluster.address), ("--executor", "inline")):
        words = ("reproduce", "tiny/0/0", "--db", db, "--out", place[1], "--json", *place)
        found = in_process(*words, cwd=tmp_path, environment=cluster.environment)
        assert found.code == 0, found.err
        assert found.json("reproduce")["equal"]
        assert [file.name for file in (tmp_path / place[1]).rglob("*") if file.is_file()] == [
            "rung-0.safetensors"
        ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_search_submitted_as_a_job_is_stopped_in_order_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    write_study(folder / "tiny.yaml", train={"tokens": 96 * 3000}, search={"trials": 0})
    db = tmp_path / "study.db"
    with ray_cluster(tmp_path, jobs=True) as cluster:
        cluster.add()
        environment = {**os.environ, **cluster.environment, "OMP_NUM_THREADS": "1"}

        def job(*words: str) -> str:
            command = [sys.executable, "-m", "ray.scripts.scripts", "job", words[0]]
            command += ["--address", f"http://127.0.0.1:{cluster.dashboard}", *words[1:]]
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return done.stdout + done.stderr

        def submit(number: str, *options: str) -> str:
            search = [sys.executable, "-m", "crossbreed", "search", "tiny.yaml", "--ray-address", "auto"]
            search += ["--workers", "1", "--device", "cpu", "--db", str(db)]
            return job("submit", "--submission-id", number, "--working-dir", ".", *options, "--", *search)

        submit("first", "--no-wait")
        limit = time.monotonic() + 120
        while look(str(db))[1] == 0:
            assert time.monotonic() < limit, job("logs", "first")
            time.sleep(0.2)
        job("stop", "first")
        reached = look(str(db))
        assert reached[0] == {"preempted": 1}, job("logs", "first")
        assert "Interrupted; everything reported is stored." in job("logs", "first")
        assert "succeeded" in submit("second")
    states, step, driven = look(str(db))
    assert (set(states), driven) == ({"done"}, False)
    assert step == 3000
    with Repository.open(str(db)) as repository:
        run = repository.run_by_key("tiny/0/0")
        assert (run.environment or {})["resumed_step"] >= reached[1] > 0


def test_a_cluster_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    study = write_study(tmp_path / "tiny.yaml")
    address = f"127.0.0.1:{free_port()}"
    result = in_process("search", study, "--ray-address", address, "--device", "cpu", cwd=tmp_path)
    assert result.code == 2
    assert f"Ray cluster '{address}' cannot be reached: nothing answers at this address" in result.err
