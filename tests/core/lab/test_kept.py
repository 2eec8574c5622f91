"""A run goes on from what it keeps: to the same losses, in another place, and not from what is not its own."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.lab.records import Evaluated, Finished, RungDone, Started
from tests.support.records import of, points

HALF = {"name": "segment_random", "params": {"segment": 3, "probability": 0.5}}


def files(job) -> list[str]:
    return sorted(p.name for p in Path(job.artefacts).iterdir())


@pytest.mark.parametrize("asks", [0, 1, 5, 9, 15])
def test_a_stopped_run_goes_on_to_exactly_the_same_losses(
    job, genome, records_of, stop_after, tmp_path, asks: int
):
    architecture = genome(dropout=0.1, gate=HALF)
    whole = records_of(job(architecture, artefacts=str(tmp_path / "whole")))
    one = job(architecture)
    first = records_of(one, stop_after(asks))
    assert first[-1].state == "preempted"
    second = records_of(replace(one, lease="lease-2"))
    assert second[-1] == Finished("done")
    assert points(first) + points(second) == points(whole)
    assert of(Evaluated, second) == of(Evaluated, whole)
    assert {r.rung: r.metrics for r in of(RungDone, first) + of(RungDone, second)} == {
        r.rung: r.metrics for r in of(RungDone, whole)
    }
    assert files(one) == ["rung-0.safetensors", "rung-1.safetensors"]


def test_rungs_may_be_given_one_job_at_a_time(job, records_of, tmp_path):
    whole = records_of(job(artefacts=str(tmp_path / "whole")))
    first = records_of(job(rungs=(768,), phases=("train",)))
    second = records_of(job(rungs=(768, 2304), lease="lease-2"))
    assert points(first) + points(second) == points(whole)
    assert of(Started, second)[0].resumed_step == 8
    assert [r.rung for r in of(RungDone, first)] == [0]
    # Rung 0 is reported again, equal to the last bit, in case its record was lost.
    assert of(RungDone, second)[0] == of(RungDone, first)[0]


def test_a_finished_run_trains_no_further(job, records_of):
    first = records_of(job())
    again = records_of(job(lease="lease-2", phases=("train", "evaluate", "profile")))
    assert points(again) == []
    assert of(RungDone, again) == of(RungDone, first)
    assert of(Evaluated, again) == of(Evaluated, first)
    assert again[-1] == Finished("done")


def test_a_checkpoint_of_another_genome_fails_the_run_with_a_sentence(job, genome, records_of):
    records_of(job())
    other = records_of(job(genome(hidden=40)))
    assert other[-1].state == "failed"
    assert "belongs to architecture" in other[-1].cause
    assert points(other) == []


def test_a_missing_checkpoint_of_a_middle_rung_is_not_made_up(job, records_of):
    one = job()
    records_of(one)
    (Path(one.artefacts) / "rung-0.safetensors").unlink()
    last = records_of(one)[-1]
    assert (last.state, "'rung-0.safetensors' of run s/1/0 is missing" in last.cause) == ("failed", True)


def test_a_copied_folder_serves_another_worker(job, records_of, tmp_path, stop_after):
    one = job()
    records_of(one, stop_after(9))
    shutil.copytree(one.artefacts, tmp_path / "elsewhere")
    records = records_of(replace(one, artefacts=str(tmp_path / "elsewhere"), lease="lease-2"))
    assert records[-1] == Finished("done")
    assert of(Started, records)[0].resumed_step == 8


def test_a_run_in_a_store_goes_on_there_and_one_that_cannot_read_it_says_so(
    job, records_of, stop_after, monkeypatch
):
    place = f"memory://{uuid.uuid4().hex}"
    one = job(artefacts=place)
    assert records_of(one, stop_after(9))[-1].state == "preempted"
    assert Artefacts.at(place).names() == ["rung-0.safetensors", "stopped.safetensors"]

    def refuse(*arguments: object, **named: object) -> None:
        raise RuntimeError("the token has expired")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, "ls", refuse)
        (last,) = records_of(one)
    assert last.state == "failed"
    assert last.cause.startswith(f"unreachable: artefacts '{place}' cannot be listed from host ")
    assert last.cause.endswith("RuntimeError: the token has expired")
    records = records_of(one)
    assert (of(Started, records)[0].resumed_step, records[-1]) == (8, Finished("done"))
    assert Artefacts.at(place).names() == ["rung-0.safetensors", "rung-1.safetensors"]
