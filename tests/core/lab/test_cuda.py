"""Trials on a CUDA device: autocast over float32 weights, memory peaks, running out of memory, resuming."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from crossbreed.core.lab.records import Finished, Profiled, RungDone, Started
from tests.support.records import of, points

pytestmark = pytest.mark.gpu

LEARNED = {"name": "learned", "params": {"segment": 4}}
PARTS: dict[str, dict[str, Any]] = {
    "attention": {"heads": 2, "head_size": 16},
    "mamba2": {"heads": 4, "head_size": 16, "state_size": 16},
    "gated_deltanet": {"heads": 2, "key_size": 16, "value_size": 16},
    "multi_mixer": {"readers": ["mamba2", "attention"], "heads": 2, "head_size": 16},
}


def architecture(mixer: str) -> dict[str, Any]:
    mode = mixer == "multi_mixer"
    first = {"sublayers": [{"mixer": mixer, "params": PARTS[mixer]}], "gate": None if mode else LEARNED}
    blocks = [first, {"sublayers": [{"mixer": "experts" if mode else "swiglu"}]}]
    return {
        "vocab": 20,
        "d_model": 32,
        "stages": [{"blocks": blocks}],
        "mode_router": LEARNED if mode else None,
    }


@pytest.mark.parametrize("mixer", PARTS)
def test_a_whole_trial_runs_under_autocast(job, records_of, recipe, mixer: str):
    settings = {**recipe, "tokens": 120 * 96, "dtype": "bfloat16", "lr": 0.01}
    phases = ("profile", "train", "evaluate", "profile")
    one = job(architecture(mixer), device="cuda", recipe=settings, phases=phases)
    records = records_of(one)
    assert records[-1] == Finished("done"), records[-1].traceback
    found = points(records)
    assert found[-1].loss_nats < 0.95 * found[0].loss_nats
    done = of(RungDone, records)[-1]
    assert done.metrics["training_peak_reserved_bytes"] >= done.metrics["training_peak_allocated_bytes"] > 0
    profiled = of(Profiled, records)
    assert [r.point for r in profiled][-1] == "own"
    for measured in (m for r in profiled for m in r.measurements):
        assert (measured.device, measured.dtype) == (torch.cuda.get_device_name(), "bfloat16")
        assert 0 < measured.q1 <= measured.median <= measured.q3 < math.inf
        # Nothing else runs on this device; only that much can be said where NVML is there.
        assert measured.phase == "train" or "GPU" not in (measured.neighbours or "")


def test_the_memory_peak_is_that_of_a_process_that_has_done_nothing_else(job, records_of, recipe):
    settings = {**recipe, "dtype": "bfloat16"}

    def peaks(**changes: Any) -> dict[str, float]:
        records = records_of(job(architecture("attention"), device="cuda", recipe=settings, **changes))
        assert records[-1].state == "done", records[-1].traceback
        measured = (m for r in of(Profiled, records) for m in r.measurements)
        return {m.metric: m.median for m in measured if m.phase == "train"}

    alone = peaks(phases=("train",))
    assert set(alone) == {"training_peak_allocated_bytes", "training_peak_reserved_bytes"}
    assert 0 < alone["training_peak_allocated_bytes"] <= alone["training_peak_reserved_bytes"] < 1 << 30
    # This process, a worker that has trained before, holds two GiB, half of it kept by the allocator alone.
    held, kept = (torch.ones(1 << 28, device="cuda") for _ in range(2))
    del kept
    crowded = peaks(phases=("train",), artefacts=str(Path(job().artefacts).with_name("again")))
    assert crowded == alone
    del held
    # A run that goes on from a checkpoint was measured when it began; other seeds need not be.
    assert peaks(phases=("train",), lease="lease-2") == {}
    assert (
        peaks(phases=("train",), memory=False, artefacts=str(Path(job().artefacts).with_name("third"))) == {}
    )


def test_a_candidate_that_does_not_fit_is_out_of_memory_before_it_trains(job, genome, records_of):
    one = job(genome(fault="allocator", at=2), device="cuda", phases=("train",))
    records = records_of(one)
    assert records[-1].state == "out_of_memory"
    assert not of(Started, records)


def test_weights_and_optimiser_stay_in_float32(job, records_of, recipe):

    one = job(
        architecture("mamba2"), device="cuda", recipe={**recipe, "dtype": "bfloat16"}, phases=("train",)
    )
    records_of(one)
    stored = load_file(Path(one.artefacts) / "rung-1.safetensors")
    assert {t.dtype for n, t in stored.items() if n.startswith("optimiser/exp_avg")} == {torch.float32}
    assert {t.dtype for n, t in stored.items() if n.startswith("model/") and t.is_floating_point()} <= {
        torch.float32,
        torch.float64,
    }


@pytest.mark.parametrize("mixer", PARTS)
def test_float32_losses_agree_with_a_cpu(job, records_of, recipe, tmp_path, mixer: str):
    # Without routers, whose hard choices may flip on the last bit.
    data = architecture(mixer)
    data["stages"][0]["blocks"][0]["gate"] = None
    if data["mode_router"] is not None:
        data["mode_router"] = {"name": "segment_random", "params": {"segment": 4, "probability": 0.5}}
        data["stages"][0]["blocks"][1] = {"sublayers": [{"mixer": "swiglu"}]}
    here, there = (
        points(records_of(job(data, device=device, phases=("train",), artefacts=str(tmp_path / device))))
        for device in ("cpu", "cuda")
    )
    assert here[-1].step == there[-1].step == 24
    assert [p.loss_nats for p in there] == pytest.approx([p.loss_nats for p in here], rel=2e-3)


def test_running_out_of_device_memory_is_its_own_state(job, genome, records_of):
    last = records_of(job(genome(fault="allocator", at=6), device="cuda"))[-1]
    assert last.state == "out_of_memory"
    assert "OutOfMemoryError" in last.cause


def test_a_stopped_run_goes_on(job, genome, records_of, stop_after, tmp_path):
    data = genome(dropout=0.1)
    whole = records_of(job(data, device="cuda", artefacts=str(tmp_path / "whole")))
    # Measuring memory first would ask as well.
    first = records_of(job(data, device="cuda", memory=False), stop_after(15))
    second = records_of(job(data, device="cuda", lease="lease-2"))
    assert first[-1].state == "preempted"
    assert of(Started, second)[0].resumed_step > 8
    losses = [p.loss_nats for p in points(first) + points(second)]
    assert len(losses) == 6
    assert losses == pytest.approx([p.loss_nats for p in points(whole)], rel=1e-4)
