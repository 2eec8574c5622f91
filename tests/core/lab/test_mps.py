"""Whether a process shares its GPU through MPS: asked of the driver, of which a stand-in answers here."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from crossbreed.core.lab import environment, mps, neighbours

GPU = torch.device("cuda", 3)


class Driver:
    """The CUDA driver's calls; ``knows``: whether it has the attribute."""

    def __init__(self, shared: bool, knows: bool = True) -> None:
        self.shared, self.knows, self.asked = shared, knows, []

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGet(self, handle: Any, index: int) -> int:
        self.asked.append(index)
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_int))[0] = 70 + index
        return 0

    def cuDeviceGetAttribute(self, answer: Any, attribute: int, handle: ctypes.c_int) -> int:
        assert (attribute, handle.value) == (133, 70 + self.asked[-1])
        if not self.knows:
            return 1
        ctypes.cast(answer, ctypes.POINTER(ctypes.c_int))[0] = int(self.shared)
        return 0


@pytest.mark.parametrize("shared", [True, False])
def test_the_driver_says_whether_a_gpu_is_shared_through_the_service(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(shared)
    monkeypatch.setattr(mps, "_driver", lambda: driver)
    assert mps.enabled(GPU) is shared
    assert driver.asked == [3]


def test_nothing_is_said_where_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mps.enabled(torch.device("cpu")) is None
    monkeypatch.setattr(mps, "LIBRARY", "no-such-library.so")
    assert mps.enabled(GPU) is None
    monkeypatch.setattr(mps, "_driver", lambda: Driver(True, knows=False))
    assert mps.enabled(GPU) is None


def test_a_runs_environment_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.describe(torch.device("cpu"))["mps"] is None
    monkeypatch.setattr(mps, "enabled", lambda device: True)
    assert environment.describe(torch.device("cpu"))["mps"] is True


def test_neighbours_behind_the_service_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "nvml", lambda device: object())
    monkeypatch.setattr(neighbours, "other_processes", dict)
    monkeypatch.setattr(mps, "enabled", lambda device: True)
    watch = neighbours.Watch.of(GPU)
    watch.begin()
    assert watch.end() is None


@pytest.mark.gpu
def test_the_real_driver_knows_the_question() -> None:
    assert mps.enabled(torch.device("cuda")) in (True, False)
