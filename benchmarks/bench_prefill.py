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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.attempts import attempts, deadline, freed, made
from benchmarks.interleaved import interleaved, ratio, spread
from benchmarks.record import Record, arguments, made_by, name_of
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


def drawn_on(device: torch.device) -> AbstractContextManager[Any]:
    """Weights are drawn where they will be: a billion of them on a CPU take half a minute."""
    return nullcontext() if device.type == "cpu" else device


def built(registry: Registry, name: str, options: argparse.Namespace) -> tuple[LanguageModel, str]:
    genome = registry.canonical(presets()[name].build())
    given = dict(pair.split("=") for pair in (*BACKENDS, *options.backend))
    backend = next((b for prefix, b in reversed(given.items()) if name.startswith(prefix)), "auto")
    device = torch.device(options.device)
    for wanted in dict.fromkeys((backend, "auto")):
        try:
            with drawn_on(device):
                return LanguageModel(genome, registry, backend=wanted).to(device).eval(), wanted
        except MissingCapability as error:
            print(f"{name}: {error}", flush=True)
    raise MissingCapability(f"{name} has no backend here")


def ready(arms: dict[str, Run]) -> dict[str, Run]:
    """Arms that have run once: kernels are compiled and chosen by then."""

    def once(run: Run) -> Run:
        run()
        return run

    return made({name: partial(once, run) for name, run in arms.items()})


@torch.inference_mode()
def measured(
    group: str, models: dict[str, tuple[LanguageModel, str]], tokens: int, options: argparse.Namespace
) -> dict[str, Any]:
    device = torch.device(options.device)
    vocab = min(model.architecture.vocab for model, _ in models.values())
    generator = torch.Generator().manual_seed(0)
    tokens_BT = torch.randint(vocab, (1, tokens), generator=generator).to(device)
    narrow = torch.bfloat16 if device.type == "cuda" else torch.float32
    prompted = {
        name: Prompted(model, backend, tokens_BT, narrow) for name, (model, backend) in models.items()
    }
    names, rival = tuple(models), GROUPS[group].names(options.tiny)[-1]
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
    group: str, registry: Registry, options: argparse.Namespace, late: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    names = GROUPS[group].names(options.tiny)
    models = made({name: partial(built, registry, name, options) for name in names})
    # Entered anew for each length: it keeps the casts of weights as long as it lasts.
    narrow = torch.autocast("cuda", torch.bfloat16, enabled=torch.device(options.device).type == "cuda")
    pieces = {
        f"{group} at {tokens} tokens": partial(narrow(measured), group, models, tokens, options)
        for tokens in options.lengths
    }
    yield from attempts(pieces, late)


def main() -> None:
    parser = arguments(__doc__, repeats=5, seconds=90.0)
    parser.add_argument("group", nargs="*", default=list(GROUPS))
    parser.add_argument("--lengths", type=int, nargs="*", default=[8192, 32768, 131072])
    parser.add_argument("--backend", nargs="*", default=[], metavar="PREFIX=NAME")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    registry = Host.load(third_party=False)
    dtype = "bfloat16" if device.type == "cuda" else "float32"
    record = Record(options.out, device=name_of(device), dtype=dtype)
    late = deadline(options.seconds)
    for group in options.group:
        for row in run_group(group, registry, options, late):
            record.keep(row | made_by(options), ("group", "tokens", "rival"))
        freed()


if __name__ == "__main__":
    main()
