"""Tokens needed to find a front: our search, Optuna's samplers and Ray Tune's ASHA on recorded learning curves.

Every strategy searches the same table (``benchmarks/replay``): a full factorial grid of small hybrids whose curves were
recorded once. What counts is the training tokens, in whole runs, until 95% of the table's hypervolume is reached by fully
trained configurations. Crossbreed's settings were chosen on the ``bytes`` table; ``recall`` is the one it is judged on.

    python -m benchmarks.bench_search [--tables recall,recall-turned,bytes,bytes-turned] [--repeats 20] [--json docs/_records/search_replay.json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from benchmarks.replay.strategies import Account, Ours, plain, ray_asha, replay
from benchmarks.replay.table import Curves
from crossbreed.core.search.statistics import t_interval

STRATEGIES: dict[str, Callable[[Account, int], None]] = {
    "crossbreed": Ours(),
    "crossbreed without screening": Ours(screen=1),
    "random": plain(lambda seed: optuna.samplers.RandomSampler(seed=seed)),
    "optuna nsga2": plain(lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20)),
    "optuna tpe": plain(lambda seed: optuna.samplers.TPESampler(seed=seed)),
    "random + our rungs": Ours("random", learn=False, starts=False, prune=False, screen=1),
    "optuna nsga2 + our rungs": Ours(
        "nsga2", population=20, learn=False, starts=False, prune=False, screen=1
    ),
    "optuna tpe + our rungs": Ours("tpe", learn=False, starts=False, prune=False, screen=1),
    "ray tune asha": ray_asha,
}

ROLES = {
    "bytes": "crossbreed's settings were chosen on it",
    "recall": "nothing was chosen on it",
    "recall-turned": "the same curves with costs turned over, so that what scores well here costs most",
    "bytes-turned": "the same curves with costs turned over",
}


def measured(curves: Curves, search: Callable[[Account, int], None], repeats: int) -> dict[str, Any]:
    """One strategy's repeats. ``spent``: whole runs' worth of tokens; a repeat that never got there counts all it spent."""
    begun = time.process_time()
    accounts = list(replay(curves, search, range(repeats)))
    spent = [account.spent for account in accounts]
    interval = t_interval(spent)
    return {
        "spent": spent,
        "mean": sum(spent) / repeats,
        "interval": None if interval is None else [interval.low, interval.high],
        "reached": sum(account.won for account in accounts),
        "begun": sum(len(account.reached) for account in accounts) / repeats,
        "finished": sum(len(account.finished) for account in accounts) / repeats,
        "cpu_s": (time.process_time() - begun) / repeats,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default="recall,bytes")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the record here, after every strategy")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"repeats": arguments.repeats, "share": 0.95, "tables": {}}
    for name in arguments.tables.split(","):
        curves = Curves.read(name)
        results: dict[str, Any] = {}
        found["tables"][name] = {
            "configurations": len(curves.draws),
            "front": len(curves.front()),
            "hypervolume": curves.whole(),
            "reference": list(curves.reference),
            "tokens": curves.tokens,
            "role": ROLES[name],
            "strategies": results,
        }
        print(f"{name}: {len(curves.draws)} configurations, {len(curves.front())} on the front")
        for strategy in arguments.strategies.split(","):
            results[strategy] = one = measured(curves, STRATEGIES[strategy], arguments.repeats)
            low, high = one["interval"] or (float("nan"), float("nan"))
            print(
                f"  {strategy:28} {one['mean']:7.2f} [{low:6.2f}, {high:6.2f}] whole runs' tokens; reached "
                f"{one['reached']}/{arguments.repeats}; {one['begun']:.0f} begun, {one['finished']:.0f} finished",
                flush=True,
            )
            if arguments.json:
                arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
