"""Prefill of long prompts: Oryx reading linearly beside a Transformer of its size, and AMOR by the share of tokens that its gates let through.

    python -m benchmarks.bench_prefill [oryx amor] [--lengths 8192 32768 131072] [--repeats 5] [--seconds 90]
                                       [--backend oryx-tm=mamba_ssm ...] [--device cuda] [--tiny] [--out record.json]

One prompt of random tokens into an empty state with room for it, the logits of its last token only, the greatest of them: the time
to the first token. bfloat16 autocast over float32 weights, launched kernel by kernel, arms of one length in turn.

oryx: every token of the prompt is read by the linear reader (mode 0) and leaves its keys and values; then one token is decoded by
attention over all of them (mode 1), which is timed apart. The rival is the Transformer with as many weights a token.
amor: choices are forced at the gates after their probes have run, the rate spread evenly, against the same model whose blocks are
always on. The attention of a gate's tokens is what falls with the rate; keys, values and probes are due for every token.

--backend PREFIX=NAME: of presets whose names begin so; others have the backend ``auto``. A backend that is not here is said, and its arm
has ``auto``, too. Records add up: a group and length keep their row until they are measured anew. --tiny: the smallest presets.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.bench_backends import commit, versions
from benchmarks.interleaved import interleaved, ratio, spread
from crossbreed.core.contracts.context import Context
from crossbreed.core.errors import MissingCapability
from crossbreed.core.host import Host, Registry
from crossbreed.core.lab.operating_points import OWN, OperatingPoint, Stretch
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.state import ModelState
from crossbreed.presets import presets

RATES = ("0", "0.1", "0.22", "0.4", "1")
LINEAR, ATTENTION = 0, 1
"""Modes of Oryx's presets."""
BACKENDS = ("oryx-tm=mamba_ssm", "oryx-tg=fla", "amor-gdn=fla", "always-gdn=fla")
Run = Callable[[], Any]


@dataclass(frozen=True)
class Group:
    """A comparison: the model that is compared, by the modes or rates of its arms, and what it is compared with."""

    presets: tuple[str, ...]
    rival: str
    tiny: tuple[str, ...]
    tiny_rival: str

    def names(self, tiny: bool) -> tuple[str, ...]:
        return (*self.tiny, self.tiny_rival) if tiny else (*self.presets, self.rival)


GROUPS = {
    "oryx": Group(
        ("oryx-tm-1.4b", "oryx-tg-1.4b"),
        "transformer-13d2-1.4b",
        ("oryx-tm-mini", "oryx-tg-mini"),
        "transformer-13d2-mini",
    ),
    "amor": Group(("amor-gdn-440m",), "always-gdn-440m", ("amor-gdn-mini",), "always-gdn-mini"),
}


class Prompted:
    """A model and what it does with one prompt."""

    def __init__(self, model: LanguageModel, backend: str, tokens_BT: Tensor, narrow: torch.dtype) -> None:
        self.model, self.backend, self.tokens_BT, self.narrow = model, backend, tokens_BT, narrow
        self.sites = model.sites()

    def prefill(self, point: OperatingPoint = OWN) -> Run:
        """The first token, by the model's time."""
        T = self.tokens_BT.shape[1]
        forced = point.forced(self.sites, Stretch(1, T, T), device=self.tokens_BT.device)
        if "mode" in self.sites:
            forced = {"mode": torch.full_like(self.tokens_BT, LINEAR)}
        context = self.model.context(self.tokens_BT, forced=forced)

        def run() -> ModelState | None:
            return self.read(context)

        return run

    def read(self, context: Context) -> ModelState | None:
        state = self.model.init_state(1, slots=self.tokens_BT.shape[1] + 1, dtype=self.narrow)
        h_BTD, after = self.model(self.tokens_BT, context, state)
        self.model.logits(h_BTD[:, -1:]).argmax(-1)
        return after

    def decode(self) -> Run:
        """The second token, by attention where there is a mode."""
        state = self.prefill()()
        token_B1 = self.tokens_BT[:, -1:]
        forced = {"mode": torch.full_like(token_B1, ATTENTION)} if "mode" in self.sites else {}
        context = self.model.context(token_B1, phase="decode", forced=forced, state=state)

        def run() -> Tensor:
            h_BTD, _ = self.model(token_B1, context, state)
            return self.model.logits(h_BTD).argmax(-1)

        return run


@contextmanager
def made_on(device: torch.device) -> Iterator[None]:
    """Weights are drawn where they will be: a billion of them on a CPU take half a minute."""
    if device.type == "cpu":
        yield
        return
    with device:
        yield


def built(registry: Registry, name: str, options: argparse.Namespace) -> tuple[LanguageModel, str]:
    genome = registry.canonical(presets()[name].build())
    given = dict(pair.split("=") for pair in (*BACKENDS, *options.backend))
    backend = next((b for prefix, b in reversed(given.items()) if name.startswith(prefix)), "auto")
    device = torch.device(options.device)
    for wanted in dict.fromkeys((backend, "auto")):
        try:
            with made_on(device):
                return LanguageModel(genome, registry, backend=wanted).to(device).eval(), wanted
        except MissingCapability as error:
            print(f"{name}: {error}", flush=True)
    raise MissingCapability(f"{name} has no backend here")


def ready(arms: dict[str, Run]) -> dict[str, Run]:
    """Arms that have run once: kernels are compiled and chosen by then. One that cannot is said and left out."""
    found = {}
    for name, run in arms.items():
        begun = time.monotonic()
        try:
            run()
        except Exception:
            print(f"{name}: failed", flush=True)
            traceback.print_exc()
            continue
        print(f"{name}: ready after {time.monotonic() - begun:.1f} s", flush=True)
        found[name] = run
    return found


def measured(
    group: str, prompted: dict[str, Prompted], tokens: int, options: argparse.Namespace
) -> dict[str, Any]:
    device = torch.device(options.device)
    names = GROUPS[group].names(options.tiny)
    rival = names[-1]
    arms: dict[str, Run] = {}
    for name in names:
        rates = RATES if group == "amor" and name != rival else (None,)
        for rate in rates:
            point = OWN if rate is None else OperatingPoint.parse(f"forced:{rate}")
            arms[name if rate is None else f"{name} {rate}"] = prompted[name].prefill(point)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    ms = interleaved(ready(arms), options.repeats, device, warm=0)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    row: dict[str, Any] = {
        "group": group,
        "tokens": tokens,
        "rival": rival,
        "ms": ms,
        "backends": {name: prompted[name].backend for name in names},
        "peak_bytes": peak,
        "times_rival": {name: ratio(ms[rival], ms[name]) for name in ms} if rival in ms else {},
    }
    for name, all_ms in ms.items():
        times = row["times_rival"].get(name, float("nan"))
        rate = 1e3 * tokens / sorted(all_ms)[len(all_ms) // 2]
        print(
            f"{tokens:7} tokens {name:24} {spread(all_ms)} ms, {rate:12,.0f} tokens/s, {times:.2f} times {rival}",
            flush=True,
        )
    if group == "oryx":
        row["decode_ms"] = {}
        # One state at a time: it is as large as all that a prefill leaves.
        for name in names:
            step = ready({f"{name}, then a token": prompted[name].decode()})
            for all_ms in interleaved(step, options.repeats, device).values():
                row["decode_ms"][name] = all_ms
            del step
    return row


def run_group(
    group: str, registry: Registry, options: argparse.Namespace, deadline: float
) -> Iterator[dict[str, Any]]:
    cuda = torch.device(options.device).type == "cuda"
    models = {name: built(registry, name, options) for name in GROUPS[group].names(options.tiny)}
    for tokens in options.lengths:
        if time.monotonic() > deadline:
            print(f"not measured for want of time: {group} at {tokens} tokens", flush=True)
            continue
        vocab = min(model.architecture.vocab for model, _ in models.values())
        generator = torch.Generator().manual_seed(0)
        tokens_BT = torch.randint(vocab, (1, tokens), generator=generator).to(options.device)
        narrow = torch.bfloat16 if cuda else torch.float32
        prompted = {
            name: Prompted(model, backend, tokens_BT, narrow) for name, (model, backend) in models.items()
        }
        try:
            with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=cuda):
                yield measured(group, prompted, tokens, options)
        except Exception:
            print(f"{group} at {tokens} tokens: failed", flush=True)
            traceback.print_exc()
        if cuda:
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("group", nargs="*", default=list(GROUPS))
    parser.add_argument("--lengths", type=int, nargs="*", default=[8192, 32768, 131072])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90.0, help="No new length is begun after these.")
    parser.add_argument("--backend", nargs="*", default=[], metavar="PREFIX=NAME")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument(
        "--commit", default=commit(), help="Of the tree that runs, where it has no history with it."
    )
    parser.add_argument("--out", type=Path, help="The record to write, or to add to.")
    options = parser.parse_args()
    cuda = torch.device(options.device).type == "cuda"
    registry = Host.load(third_party=False)
    device = torch.cuda.get_device_name() if cuda else "cpu"
    record: dict[str, Any] = {"device": device, "dtype": "bfloat16" if cuda else "float32", "rows": []}
    if options.out is not None and options.out.exists():
        record = json.loads(options.out.read_text(encoding="utf-8"))
    deadline = time.monotonic() + options.seconds
    for group in options.group:
        for row in run_group(group, registry, options, deadline):
            row |= {"versions": versions(), "commit": options.commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
            same = (row["group"], row["tokens"], row["rival"])
            record["rows"] = [r for r in record["rows"] if (r["group"], r["tokens"], r["rival"]) != same] + [
                row
            ]
            if options.out is not None:
                options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
