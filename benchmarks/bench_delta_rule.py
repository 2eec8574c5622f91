"""Time the gated delta rule against transformers' pure-PyTorch chunk rule, forward and backward, on this CPU.

    python benchmarks/bench_delta_rule.py [--repeats 7] [--threads 2]

Both get the same q, k, v, log-gates and betas (B 4, T 1024, 4 heads x 32, fp32). The rival runs at every chunk in
RIVAL_CHUNKS and its fastest median counts. Outputs and gradients are compared first. Repeats are interleaved, so
that a change of the machine's load meets everybody; every repeat is printed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule
from transformers.utils import logging

from crossbreed.core.ops.delta_rule import gated_delta_rule
from crossbreed.core.ops.norm import l2_norm

B, T, H, K = 4, 1024, 4, 32
RIVAL_CHUNKS = (16, 32, 64, 128)
WARM_UP = 2

Rule = Callable[..., tuple[Tensor, Tensor | None]]


def make_inputs() -> tuple[list[Tensor], Tensor]:
    torch.manual_seed(0)
    q, k, v = l2_norm(torch.randn(B, T, H, K)), l2_norm(torch.randn(B, T, H, K)), torch.randn(B, T, H, K)
    tensors = [q, k, v, -torch.rand(B, T, H), torch.rand(B, T, H)]
    return [x.requires_grad_() for x in tensors], torch.randn(B, T, H, K)


def forward_backward(rule: Rule, tensors: list[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    o, _ = rule(*tensors)
    return o, *torch.autograd.grad(o, tensors, grad)


def check(rules: dict[str, Rule], tensors: list[Tensor], grad: Tensor) -> None:
    ours, *rivals = (forward_backward(rule, tensors, grad) for rule in rules.values())
    for rival in rivals:
        for got, wanted in zip(ours, rival, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
    print("outputs and gradients agree (rtol 1e-3, atol 1e-4)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.repeats < 5:
        parser.error(f"--repeats is {options.repeats}; a median needs at least 5.")
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()  # transformers warns that its fused kernel is missing: that is the comparison
    tensors, grad = make_inputs()
    rules: dict[str, Rule] = {"crossbreed": gated_delta_rule}
    for chunk in RIVAL_CHUNKS:
        rules[f"transformers, chunk {chunk}"] = partial(torch_chunk_gated_delta_rule, chunk_size=chunk)
    check(rules, tensors, grad)
    times: dict[str, list[float]] = {name: [] for name in rules}
    for repeat in range(WARM_UP + options.repeats):
        for name, rule in rules.items():
            start = time.perf_counter()
            forward_backward(rule, tensors, grad)
            if repeat >= WARM_UP:
                times[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"forward + backward, ms, B {B} T {T} {H} heads x {K}, fp32, {options.threads} threads")
    for name, values in times.items():
        print(f"{name:24s} median {medians[name]:7.1f}   " + " ".join(f"{value:.1f}" for value in values))
    ours = medians.pop("crossbreed")
    best = min(medians, key=lambda name: medians[name])
    print(f"ratio to the rival's best ({best}): {medians[best] / ours:.2f}x")


if __name__ == "__main__":
    main()
