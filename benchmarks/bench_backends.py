"""Every backend of every sequence mixer on a CUDA device: how far it is from float64, and how long it takes.

    python -m benchmarks.bench_backends [MIXER ...] [--tokens 4096] [--batch 8] [--d-model 1024] [--repeats 7] [--out record.json]

Errors: outputs and gradients (of the input and all weights, as one vector) under bfloat16 autocast, as shares of the norm of the
reference's in float64, on fresh random inputs. The reference's own row says what rounding to bfloat16 alone does. Times: of the
whole mixer with its projections, forward and forward + backward, medians of interleaved repeats, one backend after the other.
Records add up: a backend whose library is missing now keeps the row of an earlier run on the same device and shape.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import MixerBuild
from crossbreed.core.errors import MissingCapability
from crossbreed.core.host import Host, Registry

MIXERS: dict[str, tuple[str, dict[str, Any]]] = {
    "attention, 16 x 64": ("attention", {"heads": 16, "head_size": 64}),
    "attention, 8 x 128": ("attention", {"heads": 8, "head_size": 128}),
    "attention, 16 x 64, 4 groups": ("attention", {"heads": 16, "kv_heads": 4, "head_size": 64}),
    "gated_deltanet, 8 x 128": ("gated_deltanet", {"heads": 8, "key_size": 128, "value_size": 128}),
    "gated_deltanet, 4 x 256": ("gated_deltanet", {"heads": 4, "key_size": 256, "value_size": 512}),
    "mamba2, 32 x 64, state 128": ("mamba2", {"heads": 32, "head_size": 64, "state_size": 128}),
}
ERROR_TOKENS, ERROR_BATCH = 1000, 2
"""Shape of the errors: no multiple of a chunk."""


def build(registry: Registry, name: str, d_model: int, backend: str) -> nn.Module:
    mixer, params = MIXERS[name]
    torch.manual_seed(0)
    made: nn.Module = registry.factory("mixer", mixer)(
        registry.config("mixer", mixer, params), MixerBuild(d_model, 1, backend, registry)
    )
    return made.cuda()


def context(batch: int, tokens: int) -> Context:
    positions = torch.arange(tokens, device="cuda").expand(batch, tokens)
    return Context(positions_BT=positions, row_id_B=torch.arange(batch, device="cuda"), phase="train")


def computed(mixer: nn.Module, x: Tensor, grad: Tensor, narrow: bool) -> tuple[Tensor, Tensor]:
    """(outputs, all gradients as one vector)"""
    mixer.zero_grad()
    x = x.detach().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
        y, _ = mixer(x, context(*x.shape[:2]), None)
    y.backward(grad.to(y.dtype))
    gradients = [x.grad, *(p.grad for p in mixer.parameters())]
    return y.detach(), torch.cat([g.double().flatten() for g in gradients if g is not None])


def off(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


def errors(registry: Registry, name: str, d_model: int, backend: str) -> tuple[float, float]:
    torch.manual_seed(1)
    x = torch.randn(ERROR_BATCH, ERROR_TOKENS, d_model, device="cuda")
    grad = torch.randn_like(x)
    exact = build(registry, name, d_model, "reference").double()
    wanted = computed(exact, x.double(), grad, narrow=False)
    got = computed(build(registry, name, d_model, backend), x, grad, narrow=True)
    return off(got[0], wanted[0]), off(got[1], wanted[1])


class Timed:
    """One backend of a mixer, timed by events of the device."""

    def __init__(
        self, registry: Registry, name: str, d_model: int, backend: str, batch: int, tokens: int
    ) -> None:
        self.mixer = build(registry, name, d_model, backend)
        self.x = torch.randn(batch, tokens, d_model, device="cuda").requires_grad_()
        self.grad = torch.randn(batch, tokens, d_model, device="cuda", dtype=torch.bfloat16)
        self.at = context(batch, tokens)
        self.forward_ms: list[float] = []
        self.both_ms: list[float] = []
        for _ in range(3):
            self.once()

    def once(self) -> tuple[float, float]:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        self.mixer.zero_grad()
        marks[0].record()
        with torch.autocast("cuda", torch.bfloat16):
            y, _ = self.mixer(self.x, self.at, None)
        marks[1].record()
        y.backward(self.grad)
        marks[2].record()
        torch.cuda.synchronize()
        return marks[0].elapsed_time(marks[1]), marks[0].elapsed_time(marks[2])

    def repeat(self) -> None:
        forward, both = self.once()
        self.forward_ms.append(forward)
        self.both_ms.append(both)


def rows(registry: Registry, name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for every backend that can run here."""
    stated = registry.descriptor("mixer", MIXERS[name][0]).capabilities.backends
    timed: dict[str, Timed] = {}
    for backend in stated:
        try:
            timed[backend] = Timed(registry, name, options.d_model, backend, options.batch, options.tokens)
        except MissingCapability as error:
            print(f"{name:30} {backend:10} not here: {error}", flush=True)
    for _ in range(options.repeats):
        for one in timed.values():
            one.repeat()
    found = []
    for backend, one in timed.items():
        forward_error, backward_error = errors(registry, name, options.d_model, backend)
        row = {
            "mixer": name,
            "backend": backend,
            "forward_error": forward_error,
            "backward_error": backward_error,
            "forward_ms": statistics.median(one.forward_ms),
            "both_ms": statistics.median(one.both_ms),
            "forward_ms_all": one.forward_ms,
            "both_ms_all": one.both_ms,
        }
        found.append(row)
        print(
            f"{name:30} {backend:10} error {forward_error:.2e} forward, {backward_error:.2e} gradients; "
            f"{row['forward_ms']:8.3f} ms forward, {row['both_ms']:8.3f} ms with backward "
            f"({min(one.both_ms):.3f} to {max(one.both_ms):.3f})",
            flush=True,
        )
    del timed
    torch.cuda.empty_cache()
    return found


def versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "triton", "fla-core", "flash-attn", "mamba-ssm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mixer", nargs="*", help="Only mixers whose names begin so.")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--d-model", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--commit", default=commit(), help="Of the tree that runs, where it has no history with it."
    )
    parser.add_argument("--out", type=Path, help="The record to write, or to add to.")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device is visible; this script compares kernels of one")
    registry = Host.load(third_party=False)
    shape = {
        "batch": options.batch,
        "tokens": options.tokens,
        "d_model": options.d_model,
        "dtype": "bfloat16",
    }
    record: dict[str, Any] = {"device": torch.cuda.get_device_name(), "shape": shape, "rows": []}
    if options.out is not None and options.out.exists():
        before = json.loads(options.out.read_text(encoding="utf-8"))
        if (before["device"], before["shape"]) != (record["device"], shape):
            sys.exit(f"{options.out} is of {before['device']} and {before['shape']}; give another --out")
        record["rows"] = before["rows"]
    for name in (n for n in MIXERS if n.startswith(tuple(options.mixer or ("",)))):
        for row in rows(registry, name, options):
            row |= {"versions": versions(), "commit": options.commit, "date": f"{datetime.now(UTC):%Y-%m-%d}"}
            same = (row["mixer"], row["backend"])
            record["rows"] = [r for r in record["rows"] if (r["mixer"], r["backend"]) != same] + [row]
        if options.out is not None:
            options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
