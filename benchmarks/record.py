"""Records of benchmarks: JSON files that say what they are of, and to which rows are added."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

LIBRARIES = ("torch", "triton", "fla-core", "flash-attn", "mamba-ssm")


def arguments(
    what: str | None,
    *,
    repeats: int,
    seconds: float = math.inf,
    limit: str = "Nothing new is begun after these.",
) -> argparse.ArgumentParser:
    """Options that benchmarks with a record have in common; ``what`` they do is their documentation."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--seconds", type=float, default=seconds, help=limit)
    parser.add_argument(
        "--device", default="cuda", help="cpu: in float32, to see that everything runs; of no other use."
    )
    parser.add_argument(
        "--commit", default=commit(), help="Of the tree that runs, where it has no history with it."
    )
    parser.add_argument("--out", type=Path, help="The record to write, or to add to.")
    return parser


def commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def name_of(device: torch.device) -> str:
    """What a record calls a device. Ends the program where it is a GPU and none is there."""
    if device.type != "cuda":
        return device.type
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device is visible; --device cpu only shows that everything runs")
    return torch.cuda.get_device_name(device)


def made_by(options: argparse.Namespace) -> dict[str, Any]:
    """Versions of the libraries that are here, the tree's commit and the date: of a row, or of a record."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"versions": found, "commit": options.commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}


class Record:
    """Rows with what they are all of: device, shape and the like.

    One that is there already is added to. Ends the program where it is of something else.
    """

    def __init__(self, out: Path | None, **about: Any) -> None:
        self.out, self.data = out, about
        if out is not None and out.exists():
            self.data = json.loads(out.read_text(encoding="utf-8"))
            before = {key: self.data.get(key) for key in about}
            if before != about:
                raise SystemExit(f"{out} is of {before}, not of {about}; give another --out")

    def keep(self, row: dict[str, Any], same: Sequence[str], part: str = "rows") -> None:
        """Add a row, in place of one that has the same under all of these names; the file is written anew."""
        rows = self.data.setdefault(part, [])
        rows[:] = [old for old in rows if any(old.get(key) != row[key] for key in same)] + [row]
        write(self.out, self.data)


def write(out: Path | None, data: dict[str, Any]) -> None:
    if out is not None:
        out.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
