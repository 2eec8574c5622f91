"""The spool, and where a search runs when nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError, UnknownName
from crossbreed.core.lab.records import Curve, CurvePoint, Evaluated, Finished, Measurement, Profiled, Started
from crossbreed.core.search.executors import available_cpus, choose, gpu_share
from crossbreed.core.search.executors.base import Spool
from crossbreed.core.search.executors.resources import Resources

RECORDS = [
    Started({"device": "cpu", "backends": {"a": "reference"}}, 3),
    Curve((CurvePoint(10, 320, 1.25, 1e-3, 0.5, {"balance": 0.1}),)),
    Evaluated("own", 320, {"accuracy": 0.5}, 0.5, {"mode": (0.25, 0.75)}, 8, 0, {"parameters": 3}, None),
    Profiled(
        "own",
        {"0.0.0.gate": (0.5, 0.5)},
        (Measurement("m", "tokens/s", "decode", 1, 16, "float32", "cpu", "best", False, 2.0, 1.0, 3.0, 7),),
    ),
    Finished("done"),
]


def test_records_survive_the_disk_exactly(tmp_path: Path) -> None:
    spool = Spool(Artefacts.at(tmp_path / "spool"))
    for record in RECORDS:
        spool.append("lease1", record)
    spool.append("lease2", Finished("failed", "why", "Traceback"))
    assert spool.leases() == ["lease1", "lease2"]
    assert list(spool.read("lease1")) == RECORDS
    spool.discard("lease1")
    spool.discard("lease1")
    assert spool.leases() == ["lease2"]
    assert list(spool.read("lease1")) == []


def test_a_line_cut_off_by_a_crash_is_ignored(tmp_path: Path) -> None:
    spool = Spool(Artefacts.at(tmp_path))
    spool.append("lease", RECORDS[0])
    spool.append("lease", RECORDS[1])
    file = tmp_path / "lease.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    assert list(spool.read("lease")) == RECORDS[:1]


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
    assert Spool(Artefacts.at(tmp_path / "none")).leases() == []


@pytest.mark.parametrize(
    ("gpus", "workers", "share"),
    [
        (0, 4, 0.0),
        (1, 1, 1.0),
        (1, 2, 0.5),
        (1, 3, 1 / 3),
        (2, 2, 1.0),
        (2, 3, 0.5),
        (4, 2, 2.0),
        (2, 5, 1 / 3),
    ],
)
def test_gpus_are_shared_without_rounding_to_zero(gpus: int, workers: int, share: float) -> None:
    assert gpu_share(gpus, workers) == pytest.approx(share)
    if gpus:
        per_gpu = int(1 / share + 1e-9) if share <= 1 else 1
        assert gpus * per_gpu >= workers


def test_a_place_is_filled_in() -> None:
    place = choose("ray", threads=1, device="cpu")
    assert (place.workers, place.resources.gpus) == (available_cpus(), 0.0)
    assert choose("ray", threads=available_cpus() + 1, device="cpu").workers == 1
    assert choose("inline", device="cpu").workers == 1


def test_a_worker_has_the_devices_of_one_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("ray", device="cpu", threads=2, devices=3).workers == max(1, available_cpus() // 6)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 5)
    place = choose("ray", devices=2)
    assert (place.device, place.workers, place.resources.gpus, place.devices) == ("cuda", 2, 2.0, 2)
    # What a cluster has nobody here knows.
    assert choose("ray", devices=8, workers=16, address="auto").resources.gpus == 8.0
    with pytest.raises(
        ConfigError, match=r"devices_per_trial is 2, and 3 workers would take 6 GPUs; this machine has 5"
    ):
        choose("ray", devices=2, workers=3)
    with pytest.raises(
        ConfigError, match=r"devices_per_trial is 8, and 1 worker would take 8 GPUs; this machine has 5"
    ):
        choose("inline", devices=8)
    with pytest.raises(ConfigError, match=r"resources\.gpus is 0\.5, but search\.devices_per_trial is 2"):
        choose("ray", devices=2, resources=Resources(gpus=0.5))


def test_processes_of_one_trial_need_a_place_that_all_of_them_reach() -> None:
    memory = Artefacts.at("memory://shared-by-nobody")
    choose("inline", device="cpu").check_artefacts(memory)
    with pytest.raises(
        ConfigError, match="memory of one process, which the processes of one trial cannot share"
    ):
        choose("inline", device="cpu", devices=2).check_artefacts(memory)


def test_places_that_cannot_be() -> None:
    with pytest.raises(UnknownName, match="did you mean 'inline'"):
        choose("in-line")
    with pytest.raises(ConfigError, match="has 1 worker, not 3"):
        choose("inline", workers=3)
    with pytest.raises(ConfigError, match="cannot use the Ray cluster 'auto'"):
        choose("inline", address="auto")
