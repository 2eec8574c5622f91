"""A trial on two GPUs of one host, over NCCL."""

from __future__ import annotations

import signal
import warnings
from typing import Any

import psutil
import pytest
import torch

from crossbreed.core.lab import trial
from crossbreed.core.lab.job import Job
from crossbreed.core.lab.records import Curve, Finished, RungDone
from crossbreed.core.lab.team import MemberLost

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs of one host"),
]
ATTENTION = {"mixer": "attention", "params": {"heads": 2, "head_size": 16}}
SWIGLU = {"mixer": "swiglu", "params": {"hidden": 64}}
GATES: dict[str, dict[str, Any]] = {"entropy_gate": {"ranks": "whole"}, "learned": {}}


@pytest.fixture
def gpu_job(job, monkeypatch):
    # Multicast over NVLink is not everywhere allowed, and changes nothing here.
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")

    def gpu_job(gate: str, **changes: Any) -> Job:
        blocks = [
            {"sublayers": [ATTENTION, SWIGLU]},
            {"sublayers": [ATTENTION, SWIGLU], "gate": {"name": gate, "params": GATES[gate]}},
        ]
        data = {"vocab": 20, "d_model": 32, "stages": [{"blocks": blocks}]}
        return job(data, plugins=(), device="cuda", memory=False, **changes)

    return gpu_job


def losses(records: list[Any]) -> list[float]:
    return [point.loss_nats for curve in records if isinstance(curve, Curve) for point in curve.points]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("captured", [True, False])
def test_two_gpus_train_what_one_trains(gpu_job, records_of, tmp_path, gate, captured):
    with warnings.catch_warnings():
        # Steps that cannot be replayed would be a warning.
        warnings.simplefilter("error", RuntimeWarning)
        one, two = (
            records_of(gpu_job(gate, devices=n, captured=captured, artefacts=str(tmp_path / str(n))))
            for n in (1, 2)
        )
    assert one[-1] == two[-1] == Finished("done")
    assert losses(two) == pytest.approx(losses(one), rel=2e-3)


def test_a_gpu_whose_process_is_killed_frees_the_other(gpu_job, records_of):
    one = gpu_job("learned", devices=2)

    def emit(record) -> None:
        if isinstance(record, RungDone):
            for child in psutil.Process().children():
                if "crossbreed.core.lab.team:follow" in " ".join(child.cmdline()):
                    child.send_signal(signal.SIGKILL)

    with pytest.raises(MemberLost):
        trial.run(one, emit, lambda: False)
    resumed = records_of(one)
    assert resumed[0].resumed_step == 8
    assert resumed[-1] == Finished("done")
