"""When a worker says that it is ready: in this process, with other real processes beside it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from crossbreed.core.artefacts import Artefacts, patience
from crossbreed.core.errors import ConfigError, OutOfMemory
from crossbreed.core.lab.records import Finished, Started
from crossbreed.core.search.executors import ray_worker
from crossbreed.core.search.executors.base import Spool
from crossbreed.core.search.executors.ray_worker import Seat, Worker


@pytest.fixture(autouse=True)
def _one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(get_node_id=lambda: "here")
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)


@pytest.fixture(autouse=True)
def _driven(tmp_path: Path) -> None:
    """A driver has its spool here."""
    Spool(Artefacts.at(tmp_path)).mark()


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_worker_is_ready_once_its_killed_predecessor_is_gone(tmp_path: Path) -> None:
    worker, before = Worker(str(tmp_path), "cpu"), sleeper()
    seats: list[Seat] = []
    asking = threading.Thread(target=lambda: seats.append(worker.ready([Seat("here", before.pid)])))
    asking.start()
    asking.join(0.3)
    assert seats == []
    before.kill()
    asking.join(20)
    assert [seat.node for seat in seats] == ["here"]
    # Reaped only now: what has ended holds no memory, whether or not its parent has looked.
    before.wait()


def test_a_predecessor_that_does_not_end_is_said_so_and_one_elsewhere_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_worker, "MEMORY_WAIT_S", 0.1)
    worker, before = Worker(str(tmp_path), "cpu"), sleeper()
    try:
        assert worker.ready([Seat("elsewhere", before.pid)]).node == "here"
        with pytest.raises(OutOfMemory, match=f"worker process {before.pid} was killed"):
            worker.ready([Seat("here", before.pid)])
    finally:
        before.kill()
        before.wait()


def test_memory_that_the_last_trial_left_behind_is_no_place_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_worker, "_device_bytes_held", lambda: ray_worker.LEFT_BYTES + 1)
    with pytest.raises(OutOfMemory, match="bytes of device memory behind"):
        Worker(str(tmp_path), "cpu").ready()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_worker_that_does_not_see_its_device_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this process sees 0 CUDA devices"):
        Worker(str(tmp_path), "cuda").ready()


def test_a_record_that_cannot_be_kept_ends_the_run_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Spool, lease: str, record: object) -> None:
        raise OSError(28, "No space left on device")

    def work(job: object, emit: object, stop: object) -> None:
        emit(Started({}))  # type: ignore[operator]

    monkeypatch.setattr(patience, "WAITS_S", (0.0, 0.0))
    monkeypatch.setattr(Spool, "append", full)
    monkeypatch.setattr(ray_worker.trial, "run", work)
    records = list(Worker(str(tmp_path), "cpu").run(SimpleNamespace(key="s/1/0", lease="a")))  # type: ignore[arg-type]
    (last,) = records
    assert isinstance(last, Finished)
    assert last.state == "failed"
    assert (
        last.cause
        == "disk: the record of a result could not be kept (No space left on device), nor 2 times more"
    )


def test_a_full_disk_leaves_no_half_of_a_line(tmp_path: Path) -> None:
    script = f"""
import resource
from pathlib import Path
from crossbreed.core.lab.records import Finished, Started
from crossbreed.core.artefacts import Artefacts
from crossbreed.core.search.executors.base import Spool
spool = Spool(Artefacts.at({str(tmp_path)!r}))
spool.append("lease", Started({{"a": 1}}))
limit = (tmp := Path({str(tmp_path)!r}) / "lease.jsonl").stat().st_size + 10
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    spool.append("lease", Finished("done"))
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "27", done.stderr
    spool = Spool(Artefacts.at(tmp_path))
    assert list(spool.read("lease")) == [Started({"a": 1})]
    spool.append("lease", Finished("done"))
    assert list(spool.read("lease")) == [Started({"a": 1}), Finished("done")]


def test_a_stop_is_heard_and_its_reason_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    worker = Worker(str(tmp_path), "cpu")
    worker.stop("the lease is stale")
    assert "the lease is stale" in capfd.readouterr().err
    assert worker._stopping.is_set()
    # The next job begins without it.
    worker.ready()
    assert not worker._stopping.is_set()
