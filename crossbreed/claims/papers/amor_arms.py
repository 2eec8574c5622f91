"""AMOR, its rivals and its tasks in miniature (arXiv 2602.13215): the runs that would show its claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crossbreed.claims.claim import Arm, Experiment, Scale
from crossbreed.core.genome import Architecture, Block, OutputScale, Router, Stage, Sublayer
from crossbreed.presets.amor import stack
from crossbreed.presets.parts import attention, layer, swiglu


@dataclass(frozen=True)
class Size:
    """One scale. ``key_size``: of the backbone's one head, which bounds what its state can hold. ``many`` and ``few`` pairs."""

    d_model: int
    layers: int
    blocks: int
    key_size: int
    head_size: int
    hidden: int
    many: int
    few: int
    tokens: int
    text_tokens: int
    batch: int
    lrs: tuple[float, ...]


SIZES: dict[Scale, Size] = {
    "cpu": Size(48, 1, 2, 4, 24, 96, 4, 2, 320_000, 500_000, 32, (3e-3, 5e-3)),
    "gpu": Size(128, 2, 3, 8, 32, 256, 16, 4, 40_000_000, 40_000_000, 64, (1e-3, 3e-3, 6e-3)),
}


def budget(s: Size) -> dict[str, Any]:
    """Of the first arm. The width of SwiGLU meets the parameters; state and heads stay. Probes and attention add FLOPs that it
    cannot take back, so that these are capped."""
    return {
        "match": {"parameters": 0.01},
        "cap": {"training_flops_per_token": 0.06},
        "free": {
            "gated_deltanet.key_size": str(s.key_size),
            "gated_deltanet.value_size": str(2 * s.key_size),
            "attention.head_size": str(s.head_size),
            "swiglu.hidden": f"16..{8 * s.hidden}",
        },
    }


def gate(kappa: float = 0.2, **params: object) -> Router:
    """The entropy gate, its running statistics fit for runs of hundreds of steps (section 10, point 4)."""
    return Router(name="entropy_gate", params={"kappa": kappa, **params})


TWICE = {"twice": "length:2"}
CONV = {"width": 4, "on": "kv"}
"""On keys and values of every attention, rivals' too: a few hundred steps are too few to learn the look one token back that
recall needs. The released blocks have none."""
RANDOM = Router(name="segment_random", params={"segment": 1, "probability": 0.4})
SEGMENTS = Router(name="segment_random", params={"segment": 8, "probability": 0.4})
LEARNED = Router(name="learned", params={"target_rate": 0.4, "loss_weight": 0.1})


def recurrence(s: Size) -> Sublayer:
    """Gated DeltaNet with one small head: the pairs are to outgrow its state."""
    params = {"heads": 1, "key_size": s.key_size, "value_size": 2 * s.key_size}
    return Sublayer(mixer="gated_deltanet", params=params)


def transformer(s: Size) -> Architecture:
    """Attention in every layer, as many as AMOR's layers and blocks."""
    block = layer(attention(s.d_model, s.head_size, short_conv=CONV), swiglu(s.hidden))
    return Architecture(vocab=2, d_model=s.d_model, stages=(stack(block, s.layers + s.blocks),))


def model(s: Size, router: Router | None, blocks: int | None = None) -> Architecture:
    """The backbone, then attention blocks behind ``router``, or always on for None; vocabulary is the task's."""
    mixer = attention(s.d_model, s.head_size, short_conv=CONV)
    count = s.blocks if blocks is None else blocks
    gated = tuple(
        Block(
            sublayers=(mixer,),
            norm="none" if i == 0 else "pre",
            output_scale=OutputScale(),
            output_init="zero",
            gate=router,
        )
        for i in range(count)
    )
    body = stack(layer(recurrence(s), swiglu(s.hidden)), s.layers)
    stages = (body, Stage(blocks=gated, entry_norm=True)) if count else (body,)
    return Architecture(vocab=2, d_model=s.d_model, stages=stages)


def text(scale: Scale, pairs: int, noise: float = 0.0) -> dict[str, Any]:
    """T1, recall in a text that can be predicted, and with ``noise`` T2: every token is a target."""
    kinds, queries, length = (6, 8, 64) if scale == "cpu" else (32, 24, 192)
    params = {
        "pairs": pairs,
        "queries": queries,
        "keys": kinds,
        "values": kinds,
        "fillers": kinds,
        "length": length,
        "noise": noise,
    }
    return {"name": "filler_recall", "params": params}


def recall(scale: Scale, pairs: int) -> dict[str, Any]:
    """Pairs to remember: in a text, or at the smaller scale, where recall in texts takes too long to learn, alone and with
    answers as the only targets."""
    if scale == "gpu":
        return text(scale, pairs)
    params = {"vocab": 16, "pairs": pairs, "length": 20, "queries": 8, "eval_items": 512}
    return {"name": "recall", "params": params}


def serial(s: Size, fused: bool = False) -> Architecture:
    """Attention in place of the recurrence in as many layers as AMOR has blocks, or beside it (section 10, points 12 and 13)."""
    heads, own = attention(s.d_model, s.head_size, short_conv=CONV), recurrence(s)
    channel = Block(sublayers=(swiglu(s.hidden),))
    both = Block(sublayers=(heads, own), arrangement="parallel_mean") if fused else Block(sublayers=(heads,))
    blocks = (Block(sublayers=(own,)), channel) * s.layers + (both, channel) * s.blocks
    return Architecture(vocab=2, d_model=s.d_model, stages=(Stage(blocks=blocks),))


def experiments(scale: Scale) -> tuple[Experiment, ...]:
    s = SIZES[scale]
    entropy, rare, alone, always = model(s, gate()), model(s, gate(0.77)), model(s, None, 0), model(s, None)
    amor = Arm("amor", entropy)
    drawn = Arm("random", model(s, RANDOM), rate_of="amor", like="amor")

    def made(name: str, task: dict[str, Any], *arms: Arm) -> Experiment:
        tokens = s.tokens if task == recall(scale, s.many) or name == "few" else s.text_tokens
        return Experiment(name, task, arms, budget(s), {"tokens": tokens, "batch": s.batch}, s.lrs)

    rivals = (
        Arm("learned", model(s, LEARNED), rate_of="amor", like="amor"),
        Arm("transformer", transformer(s)),
        Arm("serial", serial(s)),
        Arm("fused", serial(s, fused=True)),
    )
    found = (
        made(
            "recall",
            recall(scale, s.many),
            amor,
            Arm("backbone", alone),
            Arm("always", always),
            drawn,
            Arm("segments", model(s, SEGMENTS), rate_of="amor", like="amor"),
            Arm("late", model(s, gate(train=1)), like="amor"),
            *(rivals if scale == "gpu" else ()),
        ),
        made("few", recall(scale, s.few), amor, Arm("backbone", alone)),
        made("text", text(scale, s.many), Arm("amor", entropy, TWICE), Arm("always", always, TWICE)),
        made("noise-70", text(scale, s.many, 0.7), amor),
        made("text-rare", text(scale, s.many), Arm("amor", rare)),
    )
    if scale == "cpu":
        return found
    return (
        *found,
        made("noise-50", text(scale, s.many, 0.5), amor),
        made("rare", recall(scale, s.many), Arm("amor", rare), drawn),
    )
