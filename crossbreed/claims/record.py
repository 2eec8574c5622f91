"""The record of a paper's runs at one scale: one JSON file that adds up over sessions, and says what was declared when."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from crossbreed.claims.claim import Claim, Paper, Scale
from crossbreed.core.errors import ConfigError

SCHEMA = "crossbreed/claims-record/1"
TUNE, REPORT = "tune", "report"


class Declared(NamedTuple):
    """Where a declaring file stands: the commit that last touched it, its contents' own number in git, and when that was written.

    Both are None where git knows nothing of the file as it is.
    """

    commit: str | None
    blob: str | None
    written: str


@dataclass
class Record:
    """Everything that was measured for a paper's claims at one scale.

    declared: claim -> {digest, commit, blob, written, runs}: its declaration when runs were first added under it (see
              ``Declared``). ``runs``: how many of its runs were there before it.
    arms:     ``experiment/arm`` -> matched genome, certificate, ledger's main figures, and the rate it was given.
    runs:     plain data of each run (see ``run.py``). timings: name -> measured seconds, from a GPU.
    sessions: where and when runs were added.
    """

    paper: str
    scale: Scale
    path: Path
    declared: dict[str, dict[str, Any]] = field(default_factory=dict)
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    timings: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def at(path: Path, paper: str, scale: Scale) -> Record:
        """The record in a file, or an empty one. Raises ConfigError for a file that is no record of this paper and scale."""
        if not path.exists():
            return Record(paper, scale, path)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"record {str(path)!r} cannot be read: {error}.") from error
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ConfigError(f"record {str(path)!r} must be a JSON object of schema {SCHEMA!r}.")
        if (data["paper"], data["scale"]) != (paper, scale):
            raise ConfigError(
                f"record {str(path)!r} is of {data['paper']} at scale {data['scale']}, not of {paper} at {scale}; give "
                "another --record."
            )
        fields = {name: data[name] for name in ("declared", "arms", "runs", "timings", "sessions")}
        return Record(paper, scale, path, **fields)

    def save(self) -> None:
        """Write it whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        # One run a line: a session's changes can be read.
        head = {
            "schema": SCHEMA,
            "paper": self.paper,
            "scale": self.scale,
            "declared": self.declared,
            "sessions": self.sessions,
            "timings": self.timings,
        }
        lines = [json.dumps(head, indent=1)[:-2] + ',\n "arms": {']
        lines += [
            _joined(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in self.arms.items()),
            ' },\n "runs": [',
        ]
        lines += [_joined("  " + json.dumps(run) for run in self.runs), " ]\n}\n"]
        part.write_text("\n".join(lines), encoding="utf-8")
        os.replace(part, self.path)

    def changed(self, paper: Paper) -> list[str]:
        """Claims that were declared otherwise when their runs were first added."""
        return [
            c.id
            for c in paper.claims
            if c.id in self.declared and self.declared[c.id]["digest"] != c.digest()
        ]

    def declare(self, claim: Claim, declared: Declared) -> None:
        """Keep a claim's declaration, unless one is kept."""
        if claim.id not in self.declared:
            of = set(claim.experiments())
            seen = sum(run["role"] == REPORT and run["experiment"] in of for run in self.runs)
            self.declared[claim.id] = {
                "digest": claim.digest(),
                **declared._asdict(),
                "runs": seen,
            }

    def of(self, experiment: str, digest: str, arm: str, role: str) -> list[dict[str, Any]]:
        """Runs of an arm in one role, under the experiment as it stands."""
        return [
            run
            for run in self.runs
            if (run["experiment"], run["setting"], run["arm"], run["role"]) == (experiment, digest, arm, role)
        ]

    @property
    def seconds(self) -> float:
        """Of training and evaluation, all runs together."""
        return float(sum(run["seconds"] for run in self.runs))

    @property
    def tokens(self) -> int:
        return sum(run["tokens"] for run in self.runs)


def _joined(lines: Any) -> str:
    return ",\n".join(lines)
