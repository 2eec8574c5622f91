"""What the bench of several devices keeps of its turns, and the section of the page of speeds that shows it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.bench_devices import Arm, Running, visible
from tests.docs.pages import generator


def ran(arm: Arm, *turns: tuple[float, float]) -> Running:
    found = [{"rate": rate, "loss_nats": loss, "replayed": True} for rate, loss in turns]
    return Running(arm, None, found)  # type: ignore[arg-type]


def rows() -> list[dict[str, Any]]:
    one = ran(Arm("training", "m", "one device", 1, 8, 64), (100.0, 2.0), (200.0, 1.5))
    same = ran(Arm("training", "m", "2 devices, the same batch", 2, 8, 64), (180.0, 2.0), (300.0, 1.25))
    more = ran(Arm("training", "m", "2 devices, a batch each", 2, 16, 64), (190.0, 1.75))
    return [arm.row(one) for arm in (one, same, more)]


def test_arms_are_compared_within_repeats_and_losses_where_batches_are_the_same() -> None:
    one, same, more = rows()
    assert one["times_one"] == [1.0, 1.0]
    assert (same["rate"], same["times_one"], same["loss_off"]) == (240.0, [1.8, 1.5], 0.25)
    # It ended after its first turn.
    assert (more["times_one"], more["loss_off"]) == ([1.9], None)


def test_the_page_has_a_table_for_each_part_that_was_measured() -> None:
    section = generator("_devices").section
    lines = section({"device": "H200", "rows": rows()})
    assert "| `m` | 2 devices, the same batch | 8 x 64 |  | 240 | 180, 300 | 1.65 | 2.5e-01 | yes |" in lines
    assert not any("trials at once" in line for line in lines)
    trials = Arm("trials", "trials", "2 devices", 2, 32, 256, workers=16)
    running = Running(trials, None, [{"rate": 900.0}])  # type: ignore[arg-type]
    lines = section({"device": "H200", "rows": [running.row(Running(trials, None))]})  # type: ignore[arg-type]
    assert lines[-1].startswith("| `trials` | 2 devices | 32 x 256 | 16 | 900 |")


def test_arms_see_the_first_of_the_devices_that_the_bench_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert visible() == ["3", "5"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert visible() == ["0", "1"]
