"""How many times faster tasks make training rows than a model of 2 million parameters trains on them, on this CPU.

Making a batch and one step of training on it (forward, backward, clipping, AdamW) are timed in turn, for every task with the same
rows; each repeat gives one ratio, and their median and range are printed. The aim is 20: then waiting for data costs less than a
twentieth of a step, though nothing is made ahead.

    python benchmarks/bench_tasks.py [NAME ...] [--threads 2] [--repeats 5] [--batch 32]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from crossbreed.core.contracts.task import Task
from crossbreed.core.genome import Architecture
from crossbreed.core.host import Host, Registry
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.plugins.tasks import EXAMPLE

AIM = 20
PARAMETERS = 2_000_000
BLOCK = {
    "sublayers": [
        {"mixer": "attention", "params": {"heads": 4, "head_size": 48}},
        {"mixer": "swiglu", "params": {"hidden": 512}},
    ]
}
BATCHES = 10
"""Batches made while the clock runs; of training one step is long enough."""
TOKENISED = {"path": str(EXAMPLE / "fables.jsonl"), "tokenizer": str(EXAMPLE / "tokenizer.json")}


@dataclass
class Contest:
    """A task and its model. Tokens a second of making rows, and of training on them, one each a repeat."""

    name: str
    task: Task
    model: LanguageModel
    batch: int
    made: list[float] = field(default_factory=list)
    trained: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.step = 0
        self.repeat()
        self.made, self.trained = [], []

    def repeat(self) -> None:
        """One more measurement of both."""
        begin = time.perf_counter()
        for _ in range(BATCHES):
            self.step += 1
            rows = self.task.train_batch(0, self.step, self.batch)
        made = time.perf_counter()
        context = self.model.context(
            rows.tokens_BT, phase="train", document_BT=rows.document_BT, labels_BT=rows.labels_BT
        )
        self.model.loss(rows, context).objective.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        trained = time.perf_counter()
        tokens = rows.tokens_BT.numel()
        self.made.append(BATCHES * tokens / (made - begin))
        self.trained.append(tokens / (trained - made))

    @property
    def ratios(self) -> list[float]:
        return sorted(made / trained for made, trained in zip(self.made, self.trained, strict=True))


def model_of(registry: Registry, vocab: int) -> LanguageModel:
    """Attention and SwiGLU at width 192: 4 layers, or as few more or less as bring it near 2 million parameters."""
    layers = max(1, round((PARAMETERS - 192 * vocab) / 442_752))
    data = {"vocab": vocab, "d_model": 192, "stages": [{"blocks": [BLOCK] * layers}]}
    return LanguageModel(registry.canonical(Architecture.model_validate(data)), registry).train()


def contests(registry: Registry, names: list[str], batch: int) -> Iterator[Contest]:
    for name in registry.names("task"):
        tried: dict[str, dict[str, Any]] = {name: {**registry.descriptor("task", name).example}}
        if name == "text":
            tried["text, tokenised"] = {**tried["text"], **TOKENISED}
        for label, settings in tried.items():
            if not names or name in names:
                task = registry.factory("task", name)(registry.config("task", name, settings))
                yield Contest(label, task, model_of(registry, task.vocab), batch)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("names", nargs="*")
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--batch", type=int, default=32)
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    found = list(contests(Host.load(third_party=False), given.names, given.batch))
    for _ in range(given.repeats):
        for contest in found:
            contest.repeat()
    print(
        f"batch {given.batch}, {given.threads} threads, {given.repeats} repeats in turn; thousands of tokens a second"
    )
    print(f"{'task':<16}{'length':>7}{'parameters':>12}{'made':>9}{'trained':>9}{'ratio':>8}   range")
    for c in found:
        size = sum(p.numel() for p in c.model.parameters())
        made, trained, ratio = (statistics.median(x) for x in (c.made, c.trained, c.ratios))
        print(
            f"{c.name:<16}{c.task.length:>7}{size:>12,}{made / 1e3:>9,.0f}{trained / 1e3:>9.1f}{ratio:>8,.0f}   "
            f"{c.ratios[0]:,.0f} to {c.ratios[-1]:,.0f}"
        )
    slow = [c.name for c in found if statistics.median(c.ratios) < AIM]
    print(f"below {AIM}: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
