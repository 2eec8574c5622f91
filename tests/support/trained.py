"""Two small runs that were really trained, in one database: symbols under an Oryx body with gated experts, text under gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossbreed.cli import run
from tests.cli.studies import write_study

SYMBOLS, LETTERS = "symbols/0/0", "letters/0/0"
TEXT = "the cat sat on the mat and the dog sat on the log. "
READERS = {"mixer": "multi_mixer", "params": {"readers": ["mamba2", "attention"], "heads": 2, "head_size": 8}}
EXPERTS = {"mixer": "experts", "params": {"experts": 4, "hidden": 16, "top_k": 2}}
ATTENTION = {"mixer": "attention", "params": {"heads": 2, "head_size": 8}}
DELTA = {"mixer": "gated_deltanet", "params": {"heads": 2, "key_size": 8, "value_size": 8}}
ORYX: dict[str, Any] = {
    "d_model": 16,
    "mode_router": {"name": "segment_random", "params": {"segment": 4, "probability": 0.5}},
    "stages": [
        {"blocks": [{"sublayers": [READERS]}]},
        {
            "blocks": [{"sublayers": [EXPERTS], "gate": {"name": "entropy_gate"}}],
            "depth": {"name": "recurrent", "repeats": 3},
        },
    ],
}
"""Modes, then experts run three times over, each time behind an entropy gate."""
AMOR: dict[str, Any] = {
    "d_model": 16,
    "stages": [
        {"blocks": [{"sublayers": [DELTA]}]},
        {
            "entry_norm": True,
            "blocks": [{"sublayers": [ATTENTION], "norm": "none", "gate": {"name": "entropy_gate"}}],
        },
    ],
}


def train(folder: Path) -> Path:
    """A database in ``folder`` with the studies ``symbols`` and ``letters``, one run of each."""
    text, db = folder / "text.txt", folder / "crossbreed.db"
    text.write_text(TEXT * 40)
    task = {"name": "bytes", "params": {"path": str(text), "length": 32, "eval_items": 12}}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("crossbreed.core.lab.profile.DECODE_STEPS", 5)
        patched.setattr("crossbreed.core.lab.profile.PREFILL_TOKENS", 32)
        for name, reference, changes in (
            ("symbols", ORYX, {}),
            ("letters", AMOR, {"task": task, "train": {"tokens": 51200, "batch": 8, "lr": 0.02}}),
        ):
            file = write_study(
                folder / f"{name}.yaml",
                name=name,
                budget={"reference": reference, "match": {}, "cap": {"memory_bytes": "90%"}},
                search={"trials": 0, "forced_rates": [], "analytics": False},
                **changes,
            )
            command = ["search", str(file), "--executor", "inline", "--device", "cpu", "--db", str(db)]
            assert run(command) == 0
    return db
