"""Every backend of every sequence mixer on a CUDA device: how far it is from float64, and how long it takes.

    python -m benchmarks.bench_backends [MIXER ...] [--tokens 4096] [--batch 8] [--d-model 1024] [--repeats 7]
                                        [--seconds 600] [--device cuda] [--out record.json]

Errors: outputs and gradients (of the input and all weights, as one vector) under bfloat16 autocast, as shares of the norm of the
reference's in float64, on fresh random inputs. The reference's own row says what rounding to bfloat16 alone does. Times: of the
whole mixer with its projections, forward and forward + backward, medians of interleaved repeats, one backend after the other.
Records add up: a backend whose library is missing now keeps the row of an earlier run on the same device and shape.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.attempts import attempts, deadline, made
from benchmarks.interleaved import in_turn, laps
from benchmarks.record import Record, arguments, made_by, name_of
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import MixerBuild
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


def build(registry: Registry, name: str, backend: str, options: argparse.Namespace) -> nn.Module:
    mixer, params = MIXERS[name]
    torch.manual_seed(0)
    built: nn.Module = registry.factory("mixer", mixer)(
        registry.config("mixer", mixer, params), MixerBuild(options.d_model, 1, backend, registry)
    )
    return built.to(options.device)


def run(mixer: nn.Module, x: Tensor, narrow: bool) -> Tensor:
    """Outputs of a training pass, under bfloat16 autocast if ``narrow``."""
    batch, tokens = x.shape[:2]
    positions = torch.arange(tokens, device=x.device).expand(batch, tokens)
    at = Context(positions_BT=positions, row_id_B=torch.arange(batch, device=x.device), phase="train")
    with torch.autocast(x.device.type, torch.bfloat16, enabled=narrow):
        y: Tensor = mixer(x, at, None)[0]
    return y


def computed(mixer: nn.Module, x: Tensor, grad: Tensor, narrow: bool) -> tuple[Tensor, Tensor]:
    """(outputs, all gradients as one vector)"""
    mixer.zero_grad()
    x = x.detach().requires_grad_()
    y = run(mixer, x, narrow)
    y.backward(grad.to(y.dtype))
    gradients = [x.grad, *(p.grad for p in mixer.parameters())]
    return y.detach(), torch.cat([g.double().flatten() for g in gradients if g is not None])


def off(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


def errors(registry: Registry, name: str, backend: str, options: argparse.Namespace) -> tuple[float, float]:
    torch.manual_seed(1)
    x = torch.randn(ERROR_BATCH, ERROR_TOKENS, options.d_model, device=options.device)
    grad = torch.randn_like(x)
    exact = build(registry, name, "reference", options).double()
    wanted = computed(exact, x.double(), grad, narrow=False)
    got = computed(build(registry, name, backend, options), x, grad, narrow=True)
    return off(got[0], wanted[0]), off(got[1], wanted[1])


class Timed:
    """One backend of a mixer; a call gives milliseconds forward, and with backward."""

    def __init__(self, registry: Registry, name: str, backend: str, options: argparse.Namespace) -> None:
        shape, self.device = (options.batch, options.tokens, options.d_model), torch.device(options.device)
        self.mixer = build(registry, name, backend, options)
        self.x = torch.randn(shape, device=self.device).requires_grad_()
        self.grad = torch.randn(shape, device=self.device, dtype=torch.bfloat16)
        for _ in range(3):
            self()

    def __call__(self) -> list[float]:
        self.mixer.zero_grad()
        return laps([self.forward, self.backward], self.device)

    def forward(self) -> None:
        self.y = run(self.mixer, self.x, narrow=True)

    def backward(self) -> None:
        self.y.backward(self.grad)


def rows(registry: Registry, name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for every backend that can run here."""
    print(f"{name}:", flush=True)
    stated = registry.descriptor("mixer", MIXERS[name][0]).capabilities.backends
    timed = made({backend: partial(Timed, registry, name, backend, options) for backend in stated})
    found = []
    for backend, both in in_turn(timed, options.repeats).items():
        forward_ms, both_ms = ([ms[i] for ms in both] for i in range(2))
        forward_error, backward_error = errors(registry, name, backend, options)
        row = {
            "mixer": name,
            "backend": backend,
            "forward_error": forward_error,
            "backward_error": backward_error,
            "forward_ms": statistics.median(forward_ms),
            "both_ms": statistics.median(both_ms),
            "forward_ms_all": forward_ms,
            "both_ms_all": both_ms,
        }
        found.append(row)
        print(
            f"{name:30} {backend:10} error {forward_error:.2e} forward, {backward_error:.2e} gradients; "
            f"{row['forward_ms']:8.3f} ms forward, {row['both_ms']:8.3f} ms with backward "
            f"({min(both_ms):.3f} to {max(both_ms):.3f})",
            flush=True,
        )
    return found


def main() -> None:
    parser = arguments(__doc__, repeats=7, limit="No new mixer is begun after these.")
    parser.add_argument("mixer", nargs="*", help="Only mixers whose names begin so.")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--d-model", type=int, default=1024)
    options = parser.parse_args()
    registry = Host.load(third_party=False)
    shape = {
        "batch": options.batch,
        "tokens": options.tokens,
        "d_model": options.d_model,
        "dtype": "bfloat16",
    }
    record = Record(options.out, device=name_of(torch.device(options.device)), shape=shape)
    chosen = [name for name in MIXERS if name.startswith(tuple(options.mixer or ("",)))]
    pieces = {name: partial(rows, registry, name, options) for name in chosen}
    for found in attempts(pieces, deadline(options.seconds)):
        for row in found:
            record.keep(row | made_by(options), ("mixer", "backend"))


if __name__ == "__main__":
    main()
