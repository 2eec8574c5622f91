"""Time of conditional reading: an AMOR-like model at forced rates, sparse against dense + mask, and against its floor.

    python benchmarks/bench_sparse.py [--threads 1] [--repeats 5] [--vocab 512 32768] [--phase decode prefill] [--json FILE]

Layers of Gated DeltaNet and SwiGLU, then three attention blocks under entropy gates with their own probe. Decisions are
forced after the probe has run, as large a share of the tokens as the rate says, drawn anew for every block. ``floor`` is
the same model with attention blocks cut down to what nobody can skip: norm, probe, keys, values and their cache.

Decode: 50 tokens a sample (25 at a batch above 1) behind a context; prefill: one row into an empty state, the logits of
its last token. All variants run in turn in every repeat, so that a slow moment of the machine falls on all alike; ratios
are medians over repeats of ratios within a repeat. Aims: time falls with the rate; at rate 0 at most 1.1 of the floor.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if "--threads" in sys.argv[:-1]:
    os.environ["OMP_NUM_THREADS"] = sys.argv[sys.argv.index("--threads") + 1]
else:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor

from crossbreed.core.contracts.context import Context
from crossbreed.core.genome import Architecture, parse
from crossbreed.core.host import Host
from crossbreed.core.model.block import Block, Flow
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import Carry, ModelState
from crossbreed.core.ops.rotary import rotary
from crossbreed.plugins.mixers import kv_cache

RATES = (0.0, 0.1, 0.22, 0.4, 1.0)
GATED = 3
AIM = 1.1
Run = Callable[[], object]


def genome(vocab: int, width: int, layers: int) -> Architecture:
    heads = width // 64
    recurrent = {"mixer": "gated_deltanet", "params": {"heads": heads, "key_size": 64, "value_size": 64}}
    layer = [
        {"sublayers": [recurrent]},
        {"sublayers": [{"mixer": "swiglu", "params": {"hidden": 8 * width // 3}}]},
    ]
    gated = {
        "sublayers": [{"mixer": "attention", "params": {"heads": heads, "head_size": 64}}],
        "gate": {"name": "entropy_gate"},
        "output_scale": {"raw": 0.0},
    }
    stages = [{"blocks": layer * layers}, {"entry_norm": True, "blocks": [gated] * GATED}]
    return parse(Architecture, {"vocab": vocab, "d_model": width, "stages": stages}, "benchmark")


class Floor(torch.nn.Module):
    """What a gated block costs when nothing is read: norm, probe, keys, values, cache. Nothing is decided."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, h_BTD: Tensor, context: Context, carry: Carry, flow: Flow) -> Tensor:
        x_BTD = self.block.norms[0](h_BTD)
        context.entropy(x_BTD)
        mixer: Any = self.block.mixers[0]
        plan, site = mixer.plan, f"{self.block.stage}.{self.block.index}.{context.depth}.0"
        kv_BTC = torch.nn.functional.linear(x_BTD, mixer.projections.input.weight[: plan.written_width])
        k_BTGK, v_BTGV = kv_BTC.unflatten(-1, (-1, plan.heads.key_size)).split(plan.heads.key_heads, 2)
        k_BTGK = rotary(k_BTGK, context.positions_BT, *plan.rotary)
        state = {name.removeprefix("0."): tensor for name, tensor in (carry.mixer(site) or {}).items()}
        document_BT = kv_cache.document_numbers(state, context)
        state = kv_cache.write(state, k_BTGK, v_BTGV, document_BT, context, None)
        carry.keep_mixer(site, {f"0.{name}": tensor for name, tensor in state.items()})
        return h_BTD


def floored(architecture: Architecture, registry: Any) -> LanguageModel:
    model = LanguageModel(architecture, registry).eval()
    stage: Any = model.stages[1]
    for b in range(GATED):
        stage.weight_sets[0][b] = FloorBlock(stage.weight_sets[0][b])
    return model


class FloorBlock(Floor):
    """A floor that a stage takes for a block."""

    @property
    def mixers(self) -> Any:
        return self.block.mixers

    @property
    def gate(self) -> None:
        return None


def choices(rate: float, batch: int, tokens: int) -> dict[str, Tensor]:
    """For every gate, exactly the share ``rate`` of all (row, token) pairs, in its own order."""
    found, count = {}, batch * tokens
    for b in range(GATED):
        order = torch.randperm(count, generator=torch.Generator().manual_seed(b))
        on = torch.zeros(count, dtype=torch.int64)
        on[order[: round(rate * count)]] = 1
        found[f"1.{b}.gate"] = on.view(batch, tokens)
    return found


def prefill(model: LanguageModel, tokens_BT: Tensor, rate: float, execution: str) -> Run:
    forced = {} if model.sites() == {} else choices(rate, *tokens_BT.shape)
    context = model.context(tokens_BT, forced=forced).at(execution=execution)

    def run() -> None:
        state = model.init_state(len(tokens_BT), slots=tokens_BT.shape[1])
        h_BTD, _ = model(tokens_BT, context, state)
        model.logits(h_BTD[:, -1:])

    return run


def prompted(model: LanguageModel, tokens_BT: Tensor, steps: int) -> ModelState:
    """The state before the last ``steps`` tokens, with room for them: every sample writes their slots anew."""
    state: ModelState | None = model.init_state(len(tokens_BT), slots=tokens_BT.shape[1])
    prompt_BT = tokens_BT[:, :-steps]
    _, state = model(prompt_BT, model.context(prompt_BT, state=state), state)
    assert state is not None
    return state


def decode(
    model: LanguageModel, state: ModelState, tokens_BT: Tensor, steps: int, rate: float, execution: str
) -> Run:
    B, T = tokens_BT.shape
    forced = {} if model.sites() == {} else choices(rate, B, steps)
    pieces = []
    for t in range(steps):
        piece_B1 = tokens_BT[:, T - steps + t, None]
        now = {site: choice_BT[:, t, None] for site, choice_BT in forced.items()}
        context = model.context(piece_B1, phase="decode", state=state, forced=now)
        pieces.append((piece_B1, context.at(positions_BT=context.positions_BT + t, execution=execution)))

    def run() -> None:
        after: ModelState | None = state
        for piece_B1, context in pieces:
            h_BTD, after = model(piece_B1, context, after)
            model.logits(h_BTD)

    return run


def measure(runs: dict[str, Run], repeats: int) -> dict[str, list[float]]:
    """Seconds of every run in every repeat, in turn, after one that is not counted.

    One thread is timed by the processor time it took, which neighbours on the machine touch little.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            begin = clock()
            run()
            if repeat:
                seconds[name].append(clock() - begin)
    return seconds


def ratio(over: list[float], under: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def report(title: str, seconds: dict[str, list[float]], tokens: int) -> dict[str, Any]:
    print(f"\n{title}")
    print(f"{'':14}{'median ms':>10}{'tokens/s':>10}{'to floor':>10}{'to dense':>10}   repeats, ms")
    shown = {}
    for name, values in seconds.items():
        kind, _, rate = name.partition(" ")
        to_floor = ratio(values, seconds["floor"])
        to_dense = ratio(values, seconds[f"dense {rate}"]) if kind == "sparse" else None
        median = statistics.median(values)
        every = " ".join(f"{1e3 * v:.1f}" for v in values)
        dense = "" if to_dense is None else f"{to_dense:.3f}"
        print(f"{name:14}{1e3 * median:10.1f}{tokens / median:10.0f}{to_floor:10.3f}{dense:>10}   {every}")
        shown[name] = {"seconds": values, "to_floor": to_floor, "to_dense": to_dense}
    idle = ratio(seconds[f"sparse {RATES[0]}"], seconds["floor"])
    print(f"rate 0 is {idle:.3f} of the floor; the aim is at most {AIM}", flush=True)
    return shown


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=int(os.environ["OMP_NUM_THREADS"]))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--vocab", type=int, nargs="+", default=[512, 32768])
    parser.add_argument("--phase", nargs="+", choices=("decode", "prefill"), default=["decode", "prefill"])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="of decode")
    parser.add_argument("--context", type=int, default=4096, help="tokens in the cache when decoding")
    parser.add_argument("--prefill", type=int, default=2048, help="tokens of the prompt")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    registry = Host.load(third_party=False)
    record: dict[str, Any] = {"torch": torch.__version__, "threads": arguments.threads, "runs": {}}
    clock = "processor time" if arguments.threads == 1 else "elapsed time"
    print(
        f"torch {torch.__version__}, threads: {arguments.threads}, {clock}, float32, {arguments.repeats} repeats"
    )
    for vocab in arguments.vocab:
        architecture = registry.canonical(genome(vocab, arguments.width, arguments.layers))
        model, floor = LanguageModel(architecture, registry).eval(), floored(architecture, registry)
        variants = [(f"{e} {rate}", e, rate) for rate in RATES for e in ("dense", "sparse")]
        if "decode" in arguments.phase:
            for batch in arguments.batch:
                steps = 50 if batch == 1 else 25
                tokens_BT = torch.randint(vocab, (batch, arguments.context))
                behind, below = (prompted(m, tokens_BT, steps) for m in (model, floor))
                runs = {"floor": decode(floor, below, tokens_BT, steps, 0.0, "auto")}
                runs |= {n: decode(model, behind, tokens_BT, steps, rate, e) for n, e, rate in variants}
                title = f"decode, vocabulary {vocab}, batch {batch}, context {arguments.context}"
                record["runs"][title] = report(title, measure(runs, arguments.repeats), batch * steps)
        if "prefill" in arguments.phase:
            tokens_BT = torch.randint(vocab, (1, arguments.prefill))
            runs = {"floor": prefill(floor, tokens_BT, 0.0, "auto")}
            runs |= {n: prefill(model, tokens_BT, rate, e) for n, e, rate in variants}
            title = f"prefill, vocabulary {vocab}, {arguments.prefill} tokens"
            record["runs"][title] = report(title, measure(runs, arguments.repeats), arguments.prefill)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
