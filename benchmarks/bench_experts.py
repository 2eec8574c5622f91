"""Sparse experts against one dense product of the same FLOPs.

    python -m benchmarks.bench_experts [--batch 8] [--tokens 2048] [--d-model 1024] [--experts 64] [--top-k 2] [--hidden 512 2048]
        [--repeats 7] [--out record.json]

Arms for each width of an expert, in bfloat16, as recorded launches that are replayed, interleaved, forward and with backward:
  dense          one product (M, D) x (D, 3F), M = tokens x top_k, of the FLOPs that the experts' three products have;
  grouped        those three products alone, over rows already sorted by expert, by the loads that the mixer's own router gives;
  mixer          all of ``experts``: routing, dispatch, products, SwiGLU, weighted sums; weights in bfloat16;
  mixer, cast    the same with float32 weights under autocast, as the lab trains: each is cast on the way in, its gradient back.
Rate: FLOPs of the three products (2 each multiply-add, three times that with backward) over the time.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.attempts import made, run_all
from benchmarks.interleaved import Run, recorded
from benchmarks.record import Record, made_by, name_of
from benchmarks.steps import arguments, in_turns, row
from crossbreed.core.contracts.context import Context
from crossbreed.core.contracts.mixer import MixerBuild
from crossbreed.core.host import Host, Registry

REPLAYS = 5
"""Of an arm in each of its turns."""


def mixer_of(registry: Registry, options: argparse.Namespace, hidden: int) -> nn.Module:
    params = {
        "experts": options.experts,
        "top_k": options.top_k,
        "hidden": hidden,
        "shared": 0,
        "depth_encoding": "none",
    }
    torch.manual_seed(0)
    made: nn.Module = registry.factory("mixer", "experts")(
        registry.config("mixer", "experts", params), MixerBuild(options.d_model, 1, "auto", registry)
    )
    return made.to(options.device)


def context(options: argparse.Namespace) -> Context:
    positions = torch.arange(options.tokens, device=options.device).expand(options.batch, -1)
    return Context(positions, torch.arange(options.batch, device=options.device), phase="train")


def both_ways(forward: Any, leaves: list[Tensor], device: str) -> dict[str, Run]:
    """Replays of the forward pass, and of it with the gradients of all leaves."""
    with torch.no_grad():
        outputs = forward()
    grads = [torch.randn_like(y) for y in outputs]

    def ahead() -> None:
        with torch.no_grad():
            forward()

    def with_backward() -> None:
        torch.autograd.grad(forward(), leaves, grads)

    place = torch.device(device)
    return {"forward": recorded(ahead, place), "with backward": recorded(with_backward, place)}


def mixer_arm(mixer: nn.Module, x_BTD: Tensor, at: Context, cast: bool, device: str) -> dict[str, Run]:
    x_BTD = x_BTD.detach().requires_grad_()

    def forward() -> list[Tensor]:
        with torch.autocast(device, torch.bfloat16) if cast else nullcontext():
            return [mixer(x_BTD, at, None)[0]]

    return both_ways(forward, [x_BTD, *mixer.parameters()], device)


def grouped_arm(mixer: Any, x_BTD: Tensor, at: Context, device: str) -> dict[str, Run]:
    with torch.no_grad():
        dispatch = mixer.router(x_BTD.flatten(0, 1), at).dispatch
        x_MD = x_BTD.flatten(0, 1)[dispatch.order_M // dispatch.place_NJ.shape[1]].bfloat16()
    leaves = [x_MD, *(w.detach().bfloat16() for w in (mixer.gate_EDF, mixer.up_EDF, mixer.down_EFD))]
    rows_MD, gate, up, down = (leaf.requires_grad_() for leaf in leaves)

    def forward() -> list[Tensor]:
        first, second = (F.grouped_mm(rows_MD, w, offs=dispatch.end_E) for w in (gate, up))
        return [F.grouped_mm(first, down, offs=dispatch.end_E), second]

    return both_ways(forward, leaves, device)


def dense_arm(options: argparse.Namespace, hidden: int) -> dict[str, Run]:
    rows = options.batch * options.tokens * options.top_k
    how = {"device": options.device, "dtype": torch.bfloat16, "requires_grad": True}
    x_MD, w_DO = torch.randn(rows, options.d_model, **how), torch.randn(options.d_model, 3 * hidden, **how)
    return both_ways(lambda: [x_MD @ w_DO], [x_MD, w_DO], options.device)


def several(run: Run) -> None:
    for _ in range(REPLAYS):
        run()


def compare(registry: Registry, hidden: int, options: argparse.Namespace, record: Record) -> None:
    shape = options.batch, options.tokens, options.d_model
    at, x_BTD = context(options), torch.randn(*shape, device=options.device)
    mixer = mixer_of(registry, options, hidden)
    narrow = mixer_of(registry, options, hidden).bfloat16()
    ran = made(
        {
            "dense": partial(dense_arm, options, hidden),
            "grouped": partial(grouped_arm, mixer, x_BTD, at, options.device),
            "mixer": partial(mixer_arm, narrow, x_BTD.bfloat16(), at, False, options.device),
            "mixer, cast": partial(mixer_arm, mixer, x_BTD, at, True, options.device),
        }
    )
    flops = 6.0 * options.batch * options.tokens * options.top_k * options.d_model * hidden
    for way, times in (("forward", 1), ("with backward", 3)):
        arms = {arm: partial(several, runs[way]) for arm, runs in ran.items()}
        rows = []
        for arm, all_ms in in_turns(arms, options, REPLAYS).items():
            one = row(all_ms, hidden=hidden, way=way, arm=arm)
            one["tflop_per_s"] = times * flops / one["ms"] / 1e9
            rows.append(one)
        dense = next((one["ms"] for one in rows if one["arm"] == "dense"), None)
        for one in rows:
            if dense is not None:
                one["share_of_dense"] = dense / one["ms"]
            record.keep({**one, "backend": options.backend, **made_by(options)}, ("hidden", "way", "arm"))
            print(
                f"hidden {hidden:5} {way:14} {one['arm']:12} {one['ms']:8.3f} ms ({min(one['all_ms']):.3f} to "
                f"{max(one['all_ms']):.3f}), {one['tflop_per_s']:6.1f} TFLOP/s, {one.get('share_of_dense', 0):.1%} of dense",
                flush=True,
            )


def kernels_of(registry: Registry, options: argparse.Namespace) -> None:
    """Print where a mixer's time goes, by kernel."""
    mixer, x = (
        mixer_of(registry, options, options.hidden[0]),
        torch.randn(options.batch, options.tokens, options.d_model, device=options.device),
    )
    run = mixer_arm(mixer, x, context(options), True, options.device)["with backward"]
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    print(profile.key_averages().table(sort_by="device_time_total", row_limit=25, max_name_column_width=70))


def main() -> None:
    parser = arguments(__doc__, 8, 2048)
    parser.add_argument("--d-model", type=int, default=1024)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--kernels", action="store_true", help="Print the mixer's kernels by time, too.")
    options = parser.parse_args()
    registry = Host.load(third_party=False)
    about = {"batch": options.batch, "tokens": options.tokens, "d_model": options.d_model}
    shape = {**about, "experts": options.experts, "top_k": options.top_k, "dtype": "bfloat16"}
    record = Record(options.out, device=name_of(torch.device(options.device)), shape=shape)
    widths = {
        f"hidden {hidden}": partial(compare, registry, hidden, options, record) for hidden in options.hidden
    }
    run_all(widths)
    if options.kernels and options.device != "cpu":
        kernels_of(registry, options)


if __name__ == "__main__":
    main()
