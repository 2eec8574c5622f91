"""The front of an experiment, from planted runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossbreed.claims.front import front
from crossbreed.claims.plan import TUNE_SEED, setting_of
from crossbreed.claims.record import REPORT, TUNE, Record
from tests.claims.tiny import EXPERIMENT

PLANTED = {"gated": (0.9, 10.0), "random": (0.5, 10.0), "always": (0.95, 20.0)}


def planted(path: Path) -> Record:
    record = Record.at(path / "none.json", "tiny", "cpu")
    for arm, (score, flops) in PLANTED.items():
        record.arms[f"tiny/{arm}"] = {"figures": {"parameters": 7}}
        for role, seeds, lrs in (
            (TUNE, [TUNE_SEED], EXPERIMENT.lrs),
            (REPORT, [0, 1, 2], EXPERIMENT.lrs[:1]),
        ):
            for seed in seeds:
                for lr in lrs:
                    own = {
                        "score": score + 0.01 * (seed % 3 - 1),
                        "metrics": {},
                        "rates": {},
                        "ledger": {"decode_flops_per_token": flops},
                    }
                    run = {
                        "experiment": "tiny",
                        "setting": setting_of(EXPERIMENT),
                        "arm": arm,
                        "role": role,
                        "seed": seed,
                        "lr": lr,
                        "state": "done",
                        "points": {"own": own},
                    }
                    record.runs.append(run)
    return record


def test_what_another_beats_in_both_is_not_on_it(tmp_path: Path) -> None:
    points = {p.arm: p for p in front(EXPERIMENT, planted(tmp_path))}
    assert {name for name, p in points.items() if p.front} == {"gated", "always"}
    assert points["gated"].score == pytest.approx(0.9)
    assert points["gated"].interval is not None
    assert points["gated"].seeds == 3


def test_an_arm_without_runs_is_left_out(tmp_path: Path) -> None:
    record = planted(tmp_path)
    record.runs = [r for r in record.runs if r["arm"] != "always"]
    assert {p.arm for p in front(EXPERIMENT, record)} == {"gated", "random"}
