"""Settings with which a small model was seen to learn a task; tasks of which none was are left out.

Torch-free. ``benchmarks/prove_tasks.py`` trains the models and writes ``proven.json``.
"""

from __future__ import annotations

import json
from pathlib import Path

from crossbreed.core.contracts.task import Proven


def _read() -> dict[str, Proven]:
    found = json.loads(Path(__file__).with_name("proven.json").read_text(encoding="utf-8"))
    return {each.pop("task"): Proven(**each) for each in found}


PROVEN = _read()
