"""Training tokens/s of presets on a CUDA device: the lab's own loop beside the models of other libraries.

    python -m benchmarks.bench_training [PRESET ...] [--batch 8] [--tokens 2048] [--steps 4] [--repeats 5]
                                        [--seconds 600] [--backend fla] [--device cuda] [--out record.json]

Arms of one preset: the lab's loop replaying recorded passes (captured), launching them (plain), a bare hand-written loop on the
same model (bare), and rivals of the same shape that are installed: flash-linear-attention's own model with each of its fused
losses, and the transformers model with PyTorch's attention. All: bfloat16 autocast over float32 weights, fused AdamW, gradients
clipped to 1, the same batch. Every repeat of every arm trains --steps steps between two device events; arms are interleaved.
--backend: of presets with a mixer that has it; others are computed by ``auto``. A rival has the same layers; where no library has them,
as for AMOR, Oryx and Dreamer, the lab's loops are compared alone. MFU: algorithmic training FLOPs of our ledger over 989 TFLOP/s, the dense bfloat16 rate of an H100 or H200.
Records add up: a preset whose row is there keeps it unless it is named again.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.attempts import attempts, deadline, made
from benchmarks.interleaved import interleaved
from benchmarks.record import Record, made_by, name_of
from benchmarks.steps import Held, advance, arguments, random_batches, trainer
from crossbreed.core.contracts.task import Batch
from crossbreed.core.genome import Architecture, Sublayer
from crossbreed.core.host import Host, Registry
from crossbreed.core.ledger import Shape
from crossbreed.core.model.language_model import LanguageModel
from crossbreed.core.model.legality import stated_backends
from crossbreed.presets import presets

PRESETS = (
    "transformer-180m",
    "gdn-180m",
    "mamba2-180m",
    "serial-gdn-180m",
    "amor-gdn-180m",
    "oryx-tm-130m",
    "oryx-tg-130m",
)
PEAK_FLOPS = 989e12
Step = Callable[[], None]


def lab(model: LanguageModel, text: Held, captured: bool) -> Step:
    """Steps of the lab's own loop."""
    one = trainer(model, text, len(text.batches[0].tokens_BT), captured)
    advance(one, 6 if captured else 3)
    return partial(advance, one, 1)


def loop(model: nn.Module, text: Held, loss_of: Callable[[Batch], Tensor]) -> Step:
    """Steps of a loop as one would write it for one experiment."""
    parameters = list(model.parameters())
    device = parameters[0].device
    optimiser = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    model.train()
    count = 0

    def step() -> None:
        nonlocal count
        batch = text.train_batch(0, count, 0)
        tokens_BT, labels_BT = (x.to(device, non_blocking=True) for x in (batch.tokens_BT, batch.labels_BT))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(Batch(tokens_BT, labels_BT))
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        count += 1

    for _ in range(3):
        step()
    return step


def bare(model: LanguageModel, text: Held) -> Step:
    def loss_of(batch: Batch) -> Tensor:
        context = model.context(batch.tokens_BT, phase="train", labels_BT=batch.labels_BT)
        found = model.loss(batch, context).objective
        model.take_statistics()
        return found

    return loop(model, text, loss_of)


def of_library(model: nn.Module, text: Held) -> Step:
    """A causal language model of transformers' kind, which shifts its labels itself: a row's first token is given as a label, too."""

    def loss_of(batch: Batch) -> Tensor:
        labels_BT = torch.cat((batch.tokens_BT[:, :1], batch.labels_BT[:, :-1]), dim=1)
        found: Tensor = model(input_ids=batch.tokens_BT, labels=labels_BT, use_cache=False).loss
        return found

    return loop(model, text, loss_of)


def fla_delta_net(sizes: dict[str, Any]) -> nn.Module:
    from fla.models import GatedDeltaNetConfig, GatedDeltaNetForCausalLM

    return GatedDeltaNetForCausalLM(GatedDeltaNetConfig(**sizes))


def fla_transformer(sizes: dict[str, Any]) -> nn.Module:
    from fla.models import TransformerConfig, TransformerForCausalLM

    return TransformerForCausalLM(TransformerConfig(**sizes))


def llama(sizes: dict[str, Any]) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="sdpa"))


def layers_of(genome: Architecture) -> list[tuple[Sublayer, Sublayer]]:
    """(what mixes tokens, SwiGLU) of each layer of a model that has nothing else, as libraries have them; none of others."""
    found: list[tuple[Sublayer, Sublayer]] = []
    for stage in genome.stages:
        for block in stage.blocks:
            kinds = [sublayer.mixer for sublayer in block.sublayers]
            if block.gate is not None or kinds not in (["attention", "swiglu"], ["gated_deltanet", "swiglu"]):
                return []
        if stage.depth.name != "layered":
            return []
        found += [(block.sublayers[0], block.sublayers[1]) for block in stage.blocks] * stage.depth.repeats
    return found if len({channel.params["hidden"] for _, channel in found}) == 1 else []


def rivals(genome: Architecture, tokens: int) -> dict[str, Callable[[], nn.Module]]:
    """Library and setting -> maker of a model that has the same mixers, widths and depth."""
    layers = layers_of(genome)
    if not layers:
        return {}
    same = {
        "vocab_size": genome.vocab,
        "hidden_size": genome.d_model,
        "intermediate_size": layers[0][1].params["hidden"],
        "num_hidden_layers": len(layers),
        "max_position_embeddings": tokens,
        "tie_word_embeddings": genome.tie_embeddings,
    }
    attentive = [i for i, (mixer, _) in enumerate(layers) if mixer.mixer == "attention"]
    delta = next((mixer.params for mixer, _ in layers if mixer.mixer == "gated_deltanet"), None)
    heads = layers[attentive[0]][0].params["heads"] if attentive else None
    if delta is None:
        fla, own = fla_transformer, {"num_heads": heads}
    else:
        fla = fla_delta_net
        own = {
            "head_dim": delta["key_size"],
            "num_heads": delta["heads"],
            "expand_v": delta["value_size"] / delta["key_size"],
            "attn": {"layers": attentive, "num_heads": heads} if attentive else None,
        }
    off = {"fuse_cross_entropy": False, "fuse_linear_cross_entropy": False}
    found: dict[str, Callable[[], nn.Module]] = {
        f"fla, {loss}": partial(fla, same | own | off | {loss: True}) for loss in off
    }
    if delta is None:
        found["transformers, sdpa"] = partial(llama, same | {"num_attention_heads": heads})
    return found


def backend_of(genome: Architecture, registry: Registry, wanted: str) -> str:
    """``wanted``, or ``auto`` for a model of which no mixer has it."""
    stated = [stated_backends(sublayer, registry) for _, sublayer in genome.sublayers()]
    return wanted if any(wanted in some for some in stated) else "auto"


def compare(registry: Registry, name: str, options: argparse.Namespace) -> dict[str, Any]:
    print(f"{name}:", flush=True)
    device = torch.device(options.device)
    genome = registry.canonical(presets()[name].build())
    batches = random_batches(genome.vocab, options.batch, options.tokens, count=4)
    text = Held(batches, pin=device.type == "cuda")

    backend = backend_of(genome, registry, options.backend)

    def ours() -> LanguageModel:
        return LanguageModel(genome, registry, backend=backend).to(device)

    makers: dict[str, Callable[[], Step]] = {
        "captured": lambda: lab(ours(), text, captured=True),
        "plain": lambda: lab(ours(), text, captured=False),
        "bare": lambda: bare(ours(), text),
    }
    for rival, make in rivals(genome, options.tokens).items():
        makers[rival] = lambda make=make: of_library(make().to(device), text)
    shape = Shape(options.batch, options.tokens, "bfloat16")
    flops = (
        registry.factory("cost", "analytic")(None, registry).estimate(genome, shape).training_flops_per_token
    )

    def steps(step: Step) -> None:
        for _ in range(options.steps):
            step()

    arms = {arm: partial(steps, step) for arm, step in made(makers).items()}
    rows = []
    for arm, all_ms in interleaved(arms, options.repeats, device, calls=options.steps, warm=0).items():
        rates = [1e3 * options.batch * options.tokens / ms for ms in all_ms]
        rows.append({"arm": arm, "tokens_per_s": statistics.median(rates), "all": rates})
        mfu = rows[-1]["tokens_per_s"] * flops / PEAK_FLOPS
        print(
            f"{name:18} {arm:32} {rows[-1]['tokens_per_s']:12,.0f} tokens/s ({min(rates):,.0f} to {max(rates):,.0f}), MFU {mfu:.1%}",
            flush=True,
        )
    return {"preset": name, "backend": backend, "training_flops_per_token": flops, "rows": rows}


def main() -> None:
    limit = "No new preset is begun after these."
    parser = arguments(__doc__, 8, 2048, seconds=math.inf, limit=limit)
    parser.add_argument("preset", nargs="*", default=PRESETS)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    registry = Host.load(third_party=False)
    shape = {"batch": options.batch, "tokens": options.tokens, "dtype": "bfloat16"}
    record = Record(options.out, device=name_of(torch.device(options.device)), shape=shape)
    pieces = {name: partial(compare, registry, name, options) for name in options.preset}
    for found in attempts(pieces, deadline(options.seconds)):
        record.keep(found | made_by(options), ("preset",), part="presets")


if __name__ == "__main__":
    main()
