from __future__ import annotations

from pathlib import Path

import pytest
import torch

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import ConfigError
from crossbreed.core.lab import ceilings

FOUND = {"name": "a", "matrix_flops_per_s": {"float32": 1e9}, "copy_bytes_per_s": 1e8, "launch_s": 1e-6}


def test_a_cpu_has_ceilings_above_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ceilings.SIZES, "cpu", 64)
    monkeypatch.setitem(ceilings.COPIED_BYTES, "cpu", 1 << 16)
    found = ceilings.measure_ceilings(torch.device("cpu"))
    assert set(found["matrix_flops_per_s"]) == {"float32", "bfloat16", "float64"}
    assert min(found["matrix_flops_per_s"].values()) > 1e6
    assert found["copy_bytes_per_s"] > 1e6
    assert 0 < found["launch_s"] < 1


def test_a_file_keeps_several_devices_and_replaces_the_same(tmp_path: Path) -> None:
    kept = Artefacts.at(tmp_path / "new")
    ceilings.store(kept, FOUND)
    ceilings.store(kept, {**FOUND, "name": "b", "launch_s": 2e-6})
    ceilings.store(kept, {**FOUND, "launch_s": 3e-6})
    known = ceilings.read(kept)
    assert known["a"] == {**FOUND, "launch_s": 3e-6}
    assert known["b"]["launch_s"] == 2e-6


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"a": {}}',
        '{"a": {"matrix_flops_per_s": {"float32": 0}, "copy_bytes_per_s": 1, "launch_s": 1}}',
    ],
)
def test_a_file_without_ceilings_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "devices.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="easure"):
        ceilings.read(Artefacts.at(tmp_path))


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="crossbreed doctor --measure"):
        ceilings.read(Artefacts.at(tmp_path))
