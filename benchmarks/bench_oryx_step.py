"""Training steps of Oryx by the share of segments that attention reads, against what the ledger makes of both ends.

    python -m benchmarks.bench_oryx_step [PRESET ...] [--batch 8] [--tokens 2048] [--steps 3] [--repeats 5] [--out record.json]

Arms of a preset, all steps of the lab's own loop, recorded and replayed, interleaved, in bfloat16:
  skipping   attention is computed for the segments that read by it: all, half, a quarter and none of them, drawn by segment and row
             anew for each repeat. One recorded step serves all four: the modes lie in memory that it reads.
  masked     the same model computing attention everywhere and masking it, whatever the modes; here a quarter.
  one reader models that hold attention or the recurrence alone.
Prediction: every token is written for every reader, and the ledger's cost of a step is linear in the share p that reads by
attention, so its time is p x (all attention) + (1 - p) x (no attention); of all attention the quicker of both ways.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from typing import Any

import torch

from benchmarks.attempts import made, run_all
from benchmarks.record import Record, made_by, name_of
from benchmarks.steps import Steps, arguments, in_turns, row
from crossbreed.core.contracts.context import Context
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, Registry
from crossbreed.presets import presets

PRESETS = ("oryx-tm-130m", "oryx-tg-130m")
SHARES = (1.0, 0.5, 0.25, 0.0)
MASKED = 0.25


class Modes:
    """Who reads each token, in one place: a share of all segments, attention's being mode 1."""

    def __init__(self, options: argparse.Namespace, segment: int) -> None:
        self.segment = segment
        self.choice_BT = torch.zeros(options.batch, options.tokens, dtype=torch.int64, device=options.device)
        self.random = torch.Generator().manual_seed(0)

    def draw(self, share: float) -> None:
        B, T = self.choice_BT.shape
        count = B * -(-T // self.segment)
        segment_M = torch.zeros(count, dtype=torch.int64)
        segment_M[torch.randperm(count, generator=self.random)[: round(share * count)]] = 1
        self.choice_BT.copy_(segment_M.view(B, -1).repeat_interleave(self.segment, 1)[:, :T])

    def imposed(self, context: Context, execution: Any) -> Context:
        return context.at(forced={"mode": self.choice_BT}, execution=execution)


def alone(genome: Architecture, reader: int) -> Architecture:
    """The same model with one of its readers."""
    data = genome.model_dump(mode="json")
    data["mode_router"] = None
    for stage in data["stages"]:
        for block in stage["blocks"]:
            for sublayer in block["sublayers"]:
                if sublayer["mixer"] == "multi_mixer":
                    sublayer["params"]["readers"] = [sublayer["params"]["readers"][reader]]
                    for name, value in sublayer["params"].items():
                        if name != "readers" and isinstance(value, list):
                            sublayer["params"][name] = [value[reader]]
    return Architecture.model_validate(data)


def compare(registry: Registry, name: str, options: argparse.Namespace, record: Record) -> None:
    genome = registry.canonical(presets()[name].build())
    assert genome.mode_router is not None
    modes = Modes(options, genome.mode_router.params["segment"])
    readers = ("the recurrence", "attention")
    kinds = {
        "skipping": partial(Steps, genome, registry, options, partial(modes.imposed, execution="auto")),
        "masked": partial(Steps, genome, registry, options, partial(modes.imposed, execution="dense")),
    }
    for i, one in enumerate(readers):
        # A forced backend is a recurrence's; attention alone has none to force.
        own = options if i == 0 else argparse.Namespace(**{**vars(options), "backend": "auto"})
        kinds[f"one reader, {one}"] = partial(Steps, registry.canonical(alone(genome, i)), registry, own)

    def ready(make: Any) -> tuple[Steps, str]:
        modes.draw(MASKED)
        steps = make()
        return steps, steps.warm()

    ran = made({kind: partial(ready, make) for kind, make in kinds.items()})
    arms, about = {}, {}
    for kind, (steps, how) in ran.items():
        for share in {"skipping": SHARES, "masked": (MASKED,)}.get(kind, (None,)):
            arm = kind if share is None else f"{kind}, {share:g} attention"

            def run(steps: Steps = steps, share: float | None = share) -> None:
                if share is not None:
                    modes.draw(share)
                steps(options.steps)

            arms[arm], about[arm] = run, {"kind": kind, "share": share, "steps": how}
    found = in_turns(arms, options, options.steps)
    ms = {arm: statistics.median(all_ms) for arm, all_ms in found.items()}
    ends = [ms.get(f"skipping, {share:g} attention") for share in (0.0, 1.0)]
    masked = ms.get(f"masked, {MASKED:g} attention")
    linear, attention = (ms.get(f"one reader, {one}") for one in readers)
    for arm, all_ms in found.items():
        one = row(all_ms, preset=name, arm=arm, **about[arm])
        share = one["share"]
        if share is not None and None not in (*ends, masked):
            one["predicted_ms"] = share * min(ends[1], masked) + (1 - share) * ends[0]
            one["over_prediction"] = one["ms"] / one["predicted_ms"]
        if share is not None and linear is not None and attention is not None:
            one["over_one_reader"] = one["ms"] / (share * attention + (1 - share) * linear)
        record.keep({**one, "backend": options.backend, **made_by(options)}, ("preset", "arm"))
        said = f", {one['over_prediction']:.3f} of the prediction" if "over_prediction" in one else ""
        said += f", {one['over_one_reader']:.3f} of one reader's" if "over_one_reader" in one else ""
        print(
            f"{name:14} {arm:34} {one['ms']:9.2f} ms ({min(one['all_ms']):.2f} to {max(one['all_ms']):.2f}), {one['steps']}{said}",
            flush=True,
        )


def main() -> None:
    parser = arguments(__doc__, 8, 2048)
    parser.add_argument("preset", nargs="*", default=PRESETS)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    registry = Host.load(third_party=False)
    shape = {"batch": options.batch, "tokens": options.tokens, "dtype": "bfloat16"}
    record = Record(options.out, device=name_of(torch.device(options.device)), shape=shape)
    run_all({name: partial(compare, registry, name, options, record) for name in options.preset})


if __name__ == "__main__":
    main()
