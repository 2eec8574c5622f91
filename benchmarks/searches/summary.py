"""What a database's studies found, as the record that docs/gpu-search.md is written from.

    python -m benchmarks.searches.summary search.db --out docs/_records/gpu_search.json

Studies keep the order in which they were begun. Of a candidate the record has what the page shows: how it stands, its certificate's
residuals and its objectives with intervals. Records add up: a study that the record has and the database has not stays.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from crossbreed.cli.fronts import whole_data
from crossbreed.core.search.growth import history
from crossbreed.core.search.study import Study
from crossbreed.storage import Repository

SOFTWARE = ("python", "torch", "cuda", "device", "mps")
KEPT = ("number", "point", "family", "origin", "state", "cause", "on_front", "confirmed", "seeds")
QUANTITIES = ("parameters", "training_flops_per_token", "memory_bytes", "state_bytes")


def candidate(data: dict[str, Any]) -> dict[str, Any]:
    """A candidate as the page needs it."""
    certificate = data["certificate"] or {"quantities": ()}
    objectives = {
        name: {end: known(value[end]) for end in ("mean", "low", "high")}
        | {"values": list(map(known, value["values"]))}
        for name, value in data["objectives"].items()
    }
    return {
        **{name: data[name] for name in KEPT},
        "objectives": objectives,
        **{name: data["ledger"][name] for name in QUANTITIES},
        "residuals": {q["quantity"]: q["residual"] for q in certificate["quantities"]},
        "realised_residuals": data["realised_residuals"],
    }


def known(value: float | None) -> float | None:
    """A number, or None for one that nobody knows: JSON has no other word for it."""
    return value if value is not None and math.isfinite(value) else None


def summary(url: str, name: str) -> dict[str, Any]:
    with Study.open(url, name) as study:
        repository, row, file = study.repository, study.row, study.file
        found = study.read_candidates()
        objectives = study.objectives.over([c.row for c in found])
        runs = repository.runs(row.id)
        growth = history(repository, row.id)
        started = [run for run in runs if run.environment]
        return {
            "study": name,
            "task": file.task.model_dump(mode="json"),
            "train": file.train.model_dump(mode="json"),
            "per_gpu": file.search.per_gpu,
            "objectives": dict(objectives.directions),
            "speed_keys": {speed: list(key) for speed, key in objectives.keys.items()},
            "environment": {
                what: dict(Counter(str((run.environment or {}).get(what)) for run in started))
                for what in SOFTWARE
            },
            "runs": dict(Counter(run.state for run in runs)),
            "tokens": repository.trained_tokens(row.id),
            "seconds": growth[-1].seconds if growth else 0.0,
            "hypervolume": study.hypervolume(),
            "reference_point": repository.open_study(name).reference_point,
            "growth": [[g.tokens, g.seconds, g.trials, g.hypervolume] for g in growth],
            "candidates": [candidate(c) for c in whole_data(name, found, objectives)["candidates"]],
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    known: dict[str, Any] = {}
    if options.out.exists():
        known = {s["study"]: s for s in json.loads(options.out.read_text(encoding="utf-8"))["studies"]}
    for url in options.database:
        with Repository.open(url, read_only=True, create=False) as repository:
            names = [study.name for study in repository.list_studies()]
        known |= {name: summary(url, name) for name in names}
    options.out.write_text(json.dumps({"studies": list(known.values())}, indent=1) + "\n", encoding="utf-8")
    print(f"{options.out}: {', '.join(known)}")


if __name__ == "__main__":
    main()
