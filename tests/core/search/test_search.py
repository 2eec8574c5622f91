"""Whole searches with real workers: inline, on Ray, killed and taken up again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from crossbreed.core.errors import ConfigError, PluginError, StudyBusy, UnknownName
from crossbreed.core.host import Host, Registry
from crossbreed.core.search.plan import plan
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
from crossbreed.core.search.study_setting import resolve
from crossbreed.storage import Repository
from tests.core.search.material import TOY, plugin, study_data
from tests.core.search.routers import COIN, RAISES


def hybrids(**changes: Any) -> StudyFile:
    """A real space: attention layers that a router of the user's own may gate."""
    data = study_data(**{"search": {"trials": 2, "seeds": 1, "forced_rates": [0.22]}, **changes})
    data["space"] = {"name": "layer_hybrids", "mixers": ["attention", "swiglu"], "depth": ["layered"]}
    data["space"]["routers"] = changes.get("routers", ["coin"])
    return StudyFile.read({k: v for k, v in data.items() if k != "routers"})


def losses(repository: Repository, key: str) -> list[float | None]:
    return [p.loss_nats for p in repository.curve(repository.run_by_key(key).id)]


def test_a_users_router_is_searched_trained_timed_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "coin.py"
    file.write_text(COIN)
    registry = Host.load([str(file)], third_party=False)
    url = str(tmp_path / "study.db")
    with Study.start(url, hybrids(), registry) as study:
        outcome = study.run(executor="inline", device="cpu")
    assert outcome.end == "done"
    with Study.open(url) as study:
        table = study.candidates()
        by_class, by_position = study.losses(), study.losses("position")
        assert set(by_class["trial"]) == set(by_position["trial"]) == set(table[table["seeds"] > 0]["trial"])
        assert by_class["labelled"].sum() == by_position["labelled"].sum() > 0
        with pytest.raises(ConfigError, match="not by 'token'"):
            study.losses("token")  # type: ignore[arg-type]
        gated = table[table["family"].str.contains("coin")]
        assert len(gated)
        assert set(table["state"]) <= {"done", "infeasible", "off_budget"}
        done = table[table["state"] == "done"]
        assert (done["decode_tokens_per_s"] > 0).all()
        assert done["score"].between(0, 1).all()
        front = study.front()
        assert isinstance(front, pd.DataFrame)
        assert set(front["trial"]) == set(table[table["on_front"]]["trial"])
        # Trained for a few steps only, nothing need be above chance yet.
        assert study.hypervolume() >= 0
        assert study.row.reference_point is not None
        detail = study.repository.trial_detail(study.row.id, int(gated["trial"].iloc[0]))
        # Routed candidates are timed under forced rates and at their own decisions.
        assert set(detail.runs[0].points) == {"own", "forced:0.22"}
        found = study.repository.analytics(detail.runs[0].run.id)
        sites = {site["site"]: site["shares"] for site in found["decisions"].payload["sites"]}
        rates = detail.runs[0].points["own"].rates
        assert sites.keys() == rates.keys()
        # The look after a run takes fewer rows than the evaluation did.
        assert all(sites[name] == pytest.approx(rates[name], abs=0.1) for name in rates)
        assert detail.runs[0].run.identities["router:coin"].startswith("sha256:")
        assert [p.path for p in study.repository.plugin_files(study.row.id)] == [str(file)]
        with pytest.raises(ConfigError, match="start it from its study file"):
            study.run()
    with pytest.raises(PluginError, match=r"uses plugin file '.*coin.py'.*add --plugin"):
        Study.start(url, hybrids(routers="all"), Host.load(third_party=False))


def test_a_router_that_raises_becomes_a_record(tmp_path: Path) -> None:
    registry = Host.load([plugin("broken.py", RAISES)], third_party=False)
    file = hybrids(routers=["broken_coin"], objectives={"score": "max", "parameters": "min"})
    with Study.start(str(tmp_path / "study.db"), file, registry) as study:
        outcome = study.run(executor="inline", device="cpu")
        table = study.candidates()
        failed = table[table["state"] == "failed"]
        assert outcome.end == "done"
        assert set(failed["cause"]) == {"exception: RuntimeError: no coin today"}
        assert "done" in set(table["state"])
        key = f"tiny/{failed['trial'].iloc[0]}/0"
        assert "no coin today" in str(study.repository.run_by_key(key).traceback)


def toys() -> Registry:
    return Host.load([plugin("toy.py", TOY)], third_party=False)


def toy_file(**changes: Any) -> StudyFile:
    search = {"trials": 1, "seeds": 1, **changes.pop("search", {})}
    return StudyFile.read(study_data(search=search, **changes))


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a finished inline search: the reference and one candidate.

    The space's file is gone before anything is proposed: what workers get is its content.
    """
    folder = tmp_path_factory.mktemp("inline")
    file = folder / "toy.py"
    file.write_text(TOY)
    registry = Host.load([str(file)], third_party=False)
    file.unlink()
    with Study.start(str(folder / "study.db"), toy_file(), registry) as study:
        assert study.run(executor="inline", device="cpu").end == "done"
    return folder / "study.db"


def test_a_plugin_is_shipped_by_content(inline: Path) -> None:
    with Study.open(str(inline)) as study:
        assert set(study.candidates()["state"]) == {"done"}
        stored = study.repository.plugin_files(study.row.id)
    assert [(p.path, p.text) for p in stored] == [(str(inline.with_name("toy.py")), TOY)]
    assert not inline.with_name("toy.py").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_ray_search_leaves_nothing_running_and_goes_on(tmp_path: Path) -> None:
    import psutil

    file = toy_file(train={"tokens": 400_000, "log_every": 8})
    first = session(tmp_path, file, "ray")
    wait_for_curve(tmp_path / "study.db", "tiny/0/0", 2, first)
    workers = psutil.Process(first.pid).children(recursive=True)
    assert workers
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert out.strip() == "interrupted", err
    _, alive = psutil.wait_procs(workers, timeout=15)
    assert alive == []
    with Repository.open(str(tmp_path / "study.db")) as repository:
        states = repository.run_states(repository.open_study("tiny").id)
        trained = [p.step for p in repository.curve(repository.run_by_key("tiny/0/0").id)]
    assert set(states) <= {"preempted", "queued"}
    second = session(tmp_path, file, "ray")
    wait_for_curve(tmp_path / "study.db", "tiny/0/0", len(trained) + 2, second)
    workers = psutil.Process(second.pid).children(recursive=True)
    # Ray's idle agents notice after some minutes only; what trains must be gone, or it would write beside its successor.
    workers = [
        w for w in workers if "ray::Worker" in " ".join(w.cmdline()) or w.name() in ("raylet", "gcs_server")
    ]
    assert workers
    second.kill()
    second.wait()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


DRIVE = """
import json, sys
from crossbreed.core.host import Host, PluginFile
from crossbreed.core.search.study import Study
from crossbreed.core.search.study_file import StudyFile
plugin = PluginFile(*json.load(open(sys.argv[3])))
with Study.start(sys.argv[1], StudyFile.load(sys.argv[2]), Host.load([plugin], third_party=False)) as study:
    print(study.run(executor=sys.argv[4], device="cpu").end, flush=True)
"""


def session(tmp_path: Path, file: StudyFile, executor: str = "inline") -> subprocess.Popen[str]:
    toy = plugin("toy.py", TOY)
    (tmp_path / "plugin.json").write_text(json.dumps([toy.path, toy.sha256, toy.text]))
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(file.as_data()))
    arguments = [str(tmp_path / name) for name in ("study.db", "study.yaml", "plugin.json")]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVE, *arguments, executor],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for_curve(database: Path, key: str, points: int, process: subprocess.Popen[str]) -> None:
    """Until the search has stored that many curve points of a run, and is at work on it."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
        if not database.exists():
            continue
        try:
            with Repository.open(str(database), read_only=True, create=False) as repository:
                run = repository.run_by_key(key)
                if run.state == "running" and len(repository.curve(run.id)) >= points:
                    return
        except ConfigError:
            continue
    out, err = process.communicate(timeout=5) if process.poll() is not None else ("", "")
    raise AssertionError(f"the search never trained {key}: {out}{err}")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_at_any_moment_and_run_again_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    # Two rungs, so that what was killed late goes on from a checkpoint; the first of seconds, so that it is met at work.
    file = toy_file(train={"tokens": 327_680, "rungs": [0.5, 1.0], "log_every": 4})
    first = session(tmp_path, file)
    database = tmp_path / "study.db"
    wait_for_curve(database, "tiny/0/0", 2, first)
    # Held still, so that it cannot finish while the second driver starts; its process is alive all the same.
    first.send_signal(signal.SIGSTOP)
    second = session(tmp_path, file)
    _, err = second.communicate(timeout=120)
    assert second.returncode != 0
    assert StudyBusy.__name__ in err
    assert f"process {first.pid} on this host" in err
    first.send_signal(signal.SIGKILL)
    first.wait()
    third = session(tmp_path, file)
    out, err = third.communicate(timeout=240)
    assert out.strip() == "done", err
    whole = tmp_path / "whole.db"
    with Study.start(str(whole), file, toys()) as uninterrupted:
        assert uninterrupted.run(executor="inline", device="cpu").end == "done"
    with Repository.open(str(database)) as one, Repository.open(str(whole)) as other:
        study = one.open_study("tiny").id
        runs = {r.key: r.state for r in one.runs(study)}
        assert runs == {r.key: r.state for r in other.runs(other.open_study("tiny").id)}
        for key in runs:
            assert losses(one, key) == losses(other, key)


def test_opening_what_is_not_there(tmp_path: Path, inline: Path) -> None:
    with Study.open(str(inline)) as study:
        assert study.row.name == "tiny"
        assert len(study.candidates()) == 2
    with pytest.raises(UnknownName, match="unknown study 'tinny'; did you mean 'tiny'"):
        Study.open(str(inline), "tinny")
    with pytest.raises(ConfigError):
        Study.open(str(tmp_path / "none.db"))


def test_a_study_goes_on_only_with_the_data_it_was_begun_with(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    task = {"name": "bytes", "params": {"path": str(text), "length": 12}}
    file = StudyFile.read({**toy_file().as_data(), "task": task})
    url = str(tmp_path / "bytes.db")
    Study.start(url, file, toys()).close()
    Study.start(url, file, toys()).close()
    text.write_text("five boxing wizards jump quickly over the moon\n" * 200)
    with pytest.raises(ConfigError, match="was begun with other data"):
        Study.start(url, file, toys())


def test_another_recipe_under_the_same_name_is_refused(inline: Path) -> None:
    with pytest.raises(ConfigError, match="exists with another 'train' section"):
        Study.start(str(inline), toy_file(train={"tokens": 9999}), toys())


def test_a_new_study_takes_over_no_checkpoints_of_another_database(tmp_path: Path, inline: Path) -> None:
    url = str(tmp_path / "study.db")
    left = inline.with_name("study-artefacts") / "tiny"
    shutil.copytree(left, tmp_path / "study-artefacts" / "tiny")
    with pytest.raises(ConfigError, match=r"holds artefacts of a study 'tiny'.* remove the folder"):
        Study.start(url, toy_file(), toys())
    shutil.rmtree(tmp_path / "study-artefacts")
    Study.start(url, toy_file(), toys()).close()


def test_named_genomes_are_trained_without_searching(tmp_path: Path) -> None:
    file = toy_file(search={"trials": 0, "seeds": 2})
    setting = resolve(file, toys())
    assert setting.reference is not None
    named = setting.reference.with_params((0, 0, 1), hidden=16)
    with Study.start(str(tmp_path / "study.db"), file, toys()) as study:
        study.run(executor="inline", device="cpu", named=[named])
        table = study.candidates()
    assert list(table["origin"]) == ["reference", "named"]
    assert list(table["seeds"]) == [2, 2]
    assert table["confirmed"].all()


def test_a_plan_trains_nothing_and_stores_nothing(tmp_path: Path) -> None:
    setting = resolve(toy_file(search={"trials": 4, "seeds": 3}), toys())
    found = plan(setting, workers=2)
    assert found.families == ["width 32", "width 8", "width 16"]
    assert found.runs == (4 + 4, 4 * 4 + 4)
    assert 0 < found.seconds[0] < found.seconds[1]
    assert found.seconds[0] == pytest.approx(8 * found.seconds_per_run / 2)
    weights = max(row.ledger.parameters for row in found.rows if row.ledger is not None)
    assert found.disk_bytes[0] == 8 * 12 * weights
    assert list(tmp_path.iterdir()) == []
