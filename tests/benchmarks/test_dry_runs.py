"""Every script that makes a record of a GPU runs through on a CPU, and nothing in it fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {
    "backends": "mamba2 --batch 1 --tokens 32 --d-model 32",
    "data_wait": "amor-gdn-mini --tokens 16 --batch 2 --steps 1",
    "decode": "--scale mini --batch 1 --contexts 64 --rates 0 0.22 --whole gdn-mini --whole-contexts 64 --tokens 3",
    "depth": "dreamer-l8-k4 --shapes 1x16 --steps 1",
    "devices": "transformer-mini --batch 2 --tokens 16 --steps 1 --per-gpu 1",
    "experts": "--batch 1 --tokens 16 --d-model 16 --experts 4 --top-k 2 --hidden 16",
    "one_token": "--contexts 16 --batch 1",
    "oryx_step": "oryx-tm-mini --batch 2 --tokens 32 --steps 1",
    "packing": "--workers 2 --alone 1",
    "prefill": "--tiny --lengths 64",
    "probe": "--widths 16 --classes 100 --decode 1 --prefill 8",
    "training": "gdn-mini --batch 2 --tokens 16 --steps 1",
}


def test_every_script_of_gpu_records_is_tried_here() -> None:
    asked = re.findall(r"^record \w+ \d+ bench_(\w+)", (ROOT / "scripts/gpu-records").read_text(), re.M)
    assert set(asked) == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_script_runs_through_on_a_cpu(tmp_path: Path, name: str) -> None:
    out = tmp_path / "record.json"
    shared = ["--device", "cpu", "--repeats", "2", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.bench_{name}", *SMALL[name].split(), *shared],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    record = json.loads(out.read_text())
    assert record["device"]
    assert any(isinstance(part, list) and part for part in record.values())
