"""One Gated DeltaNet layer under the field's usual counters and ours: the page, from a committed record.

    python docs/_generate/three_counters.py      measure again, and write docs/_records/three_counters.json

The layer runs on fake tensors, which have shapes and no numbers, so counting needs no memory and no time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = "three-counters.md"
RECORD = Path(__file__).resolve().parent.parent / "_records" / "three_counters.json"
LAYER = {"heads": 8, "key_size": 128, "value_size": 128}
D_MODEL, LENGTHS = 1024, (2048, 32768)


def measure(lengths: tuple[int, ...] = LENGTHS) -> dict[str, Any]:
    """All counts, per token, at each length."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from crossbreed.core.host import Host

    registry = Host.load(third_party=False)
    config = registry.config("mixer", "gated_deltanet", LAYER)
    cls = registry.factory("mixer", "gated_deltanet")
    with FakeTensorMode():
        return counted(registry, config, cls, lengths)


def counted(registry: Any, config: Any, cls: Any, lengths: tuple[int, ...]) -> dict[str, Any]:
    """The record, from a layer of fake tensors."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from crossbreed.core.conformance.flop_count import count_flops
    from crossbreed.core.contracts.context import Context
    from crossbreed.core.contracts.mixer import MixerBuild
    from crossbreed.core.ledger import Shape, Work

    layer = cls(config, MixerBuild(D_MODEL, parts=registry))
    parameters = sum(p.numel() for p in layer.parameters())
    rows = []
    for T in lengths:
        x_BTD = torch.empty(1, T, D_MODEL, requires_grad=True)
        positions_BT = torch.arange(T)[None]
        context = Context(positions_BT, torch.zeros(1, dtype=torch.int64), phase="train")

        def forward(x_BTD: Any = x_BTD, context: Any = context) -> Any:
            return layer(x_BTD, context, None)[0]

        def both(forward: Any = forward) -> None:
            forward().sum().backward()

        def pytorch(run: Any) -> float:
            with FlopCounterMode(display=False) as counter:
                run()
            return float(counter.get_total_flops())

        linear = 2.0 * sum(p.numel() for n, p in layer.named_parameters() if p.dim() == 2 and "conv" not in n)
        recurrence = 2.0 * LAYER["heads"] * LAYER["value_size"] ** 2 * 4
        convolution = sum(2.0 * p.numel() for n, p in layer.named_parameters() if "conv" in n)
        ours: dict[str, Work] = {}
        for phase in ("train", "prefill", "decode"):
            cost = cls.cost(config, D_MODEL, Shape(1, T, "float32", phase), 1, registry)
            ours[phase] = cost.write.plus(cost.reads[0])
        rows.append(
            {
                "tokens": T,
                "six_n": 6.0 * parameters,
                "six_n_and_attention": 6.0 * parameters + 12.0 * LAYER["heads"] * LAYER["key_size"] * T,
                "linear_layers_forward": linear,
                "four_products_forward": linear + convolution + recurrence,
                "four_products_training": 3 * (linear + convolution + recurrence),
                "pytorch_forward": pytorch(forward) / T,
                "pytorch_training": pytorch(both) / T,
                "dispatched_forward": count_flops(forward) / T,
                "dispatched_training": count_flops(both) / T,
                "ledger_executed_forward": ours["prefill"].executed_forward,
                "ledger_executed_training": ours["train"].executed_training,
                "ledger_forward": ours["prefill"].forward,
                "ledger_training": ours["train"].training,
                "ledger_decode": ours["decode"].forward,
            }
        )
    return {
        "layer": {"mixer": "gated_deltanet", "d_model": D_MODEL, **LAYER},
        "parameters": parameters,
        "rows": rows,
    }


COUNTERS = (
    (
        "forward",
        (
            (
                "linear_layers_forward",
                "linear layers only: what DeepSpeed's profiler sees of code that writes `a @ b` [1]",
            ),
            (
                "four_products_forward",
                "a branch for this layer: four products of the state's size a token, the chunk left out (Megatron-Bridge) [5]",
            ),
            ("pytorch_forward", "PyTorch's `FlopCounterMode` on this layer's reference path [2]"),
            ("dispatched_forward", "every operation dispatched on that path, none left out"),
            ("ledger_executed_forward", "**ledger, executed**"),
            ("ledger_forward", "**ledger, algorithmic**"),
        ),
    ),
    (
        "forward + backward",
        (
            ("six_n", "the 6N rule [3]"),
            ("six_n_and_attention", "6N + 12 L H Q T, charged to every layer (flame, torchtitan) [4]"),
            ("four_products_training", "three times the branch for this layer (Megatron-Bridge) [5]"),
            ("pytorch_training", "PyTorch's `FlopCounterMode` on this layer's reference path [2]"),
            ("dispatched_training", "every operation dispatched on that path, none left out"),
            ("ledger_executed_training", "**ledger, executed**"),
            ("ledger_training", "**ledger, algorithmic**"),
        ),
    ),
    ("one decoded token", (("ledger_decode", "**ledger, algorithmic**"),)),
)

NOTES = """\
1. deepspeedai/DeepSpeed#4723: products written with the operator are not patched. Reproduced here as twice the weights of
   the linear layers.
2. It counts nothing for the triangular solve of the chunk, and takes the gradient of a grouped convolution for that of a
   dense one where it meets one (pytorch/pytorch#131041 and its neighbours).
3. Kaplan et al., 2020: two FLOPs a weight forward, four backward. Recurrences and scores are free.
4. The quadratic term of softmax attention, which this layer does not have: at 32,768 tokens it is nine tenths of the count.
   Reproduced from the formula in flame's and torchtitan's utilities: L = 1 layer, H = 8 heads of Q = 128.
5. NVIDIA-NeMo/Megatron-Bridge#3029: projections, convolution and 4 H V^2 multiply-adds for the recurrence as one step after
   another, where the ledger has three and, outside decode, the products inside a chunk. Reproduced from the formula.
"""


def page(record: dict[str, Any]) -> str:
    """The page, as Markdown."""
    layer, rows = record["layer"], record["rows"]
    lines = [
        "# Three counters, one layer",
        "",
        f"One Gated DeltaNet layer (d_model {layer['d_model']:,}, {layer['heads']} heads, keys of {layer['key_size']}, values of "
        f"{layer['value_size']}; {record['parameters']:,} parameters), counted in the ways that the field counts. Millions of "
        "FLOPs per token; a multiply-add is 2.",
        "",
    ]
    head = "| counter | " + " | ".join(f"T = {row['tokens']:,}" for row in rows) + " |"
    for title, counters in COUNTERS:
        lines += [f"## {title.capitalize()}", "", head, "|---|" + "---:|" * len(rows)]
        for key, label in counters:
            lines.append(f"| {label} | " + " | ".join(f"{row[key] / 1e6:,.2f}" for row in rows) + " |")
        lines.append("")
    first, last = rows[0], rows[-1]
    lines += [
        "## What to make of it",
        "",
        f"For the same layer at {first['tokens']:,} tokens a reader may be told {first['four_products_forward'] / 1e6:.1f}, "
        f"{first['six_n'] / 1e6:.1f} or {first['six_n_and_attention'] / 1e6:.1f} million, and "
        f"{last['six_n_and_attention'] / 1e6:.0f} million at {last['tokens']:,}. The first is a forward pass of "
        "single steps, the second leaves out the recurrence, the third charges a linear mixer for attention it does not compute. A recurrence costs the same "
        "at every length, which only counters that look at the layer can say. The ledger's executed count is what is "
        "dispatched, and its algorithmic count is what budgets use: it does not move when a kernel picks another chunk.",
        "",
        NOTES,
    ]
    return "\n".join(lines)


def text() -> str:
    """The page that the committed record gives."""
    mark = "<!-- Written from docs/_records/three_counters.json by `make generated`: change the record, not this page. -->"
    return f"{mark}\n\n{page(json.loads(RECORD.read_text(encoding='utf-8')))}"


if __name__ == "__main__":
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(measure(), indent=2) + "\n")
    print(f"wrote {RECORD}; now run `make generated`")
