"""Labels of architectures: what a model is made of, without numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from crossbreed.core.genome import Architecture, Block, DepthPolicy, Stage, Sublayer

LAYERS = DepthPolicy().name
"""The depth policy that labels leave unsaid: its repeats are layers like those that are listed."""
PLAIN_CHANNEL = "swiglu"
"""The channel mixer that labels leave unsaid."""


def family(architecture: Architecture, axes: Mapping[str, str]) -> str:
    """Stages in order, then the routers: ``"mamba2+attention/gate:learned"``, ``"recurrent attention experts"``,
    ``"gated_deltanet > attention/gate:entropy_gate"``.

    A stage is its depth policy unless that is the usual one, a list of layers; its sequence mixers in order of appearance
    (``&`` between those side by side), and its channel mixers unless plain. ``axes``: what is known of mixers' axes.
    """
    text = " > ".join(dict.fromkeys(_stage(stage, axes) for stage in architecture.stages))
    if architecture.mode_router is not None:
        text += f"/{architecture.mode_router.name}"
    gates = dict.fromkeys(b.gate.name for s in architecture.stages for b in s.blocks if b.gate is not None)
    halts = dict.fromkeys(s.halt.name for s in architecture.stages if s.halt is not None)
    return text + "".join(f"/gate:{g}" for g in gates) + "".join(f"/halt:{h}" for h in halts)


def _stage(stage: Stage, axes: Mapping[str, str]) -> str:
    mixing: dict[str, None] = {}
    channel: dict[str, None] = {}
    for block in stage.blocks:
        # A block's last sublayer is its channel mixer; a block of one is whatever its neighbours are not.
        tokens = [sub for sub in block.sublayers if _mixes_tokens(sub, block, axes)]
        if block.arrangement == "parallel_mean" and len(tokens) > 1:
            mixing["&".join(map(_label, tokens))] = None
        else:
            mixing |= dict.fromkeys(map(_label, tokens))
        channel |= dict.fromkeys(_label(sub) for sub in block.sublayers if sub not in tokens)
    depth = [stage.depth.name] if stage.depth.repeats > 1 and stage.depth.name != LAYERS else []
    return " ".join(_said([*depth, "+".join(mixing), *[c for c in channel if c != PLAIN_CHANNEL]]))


def _said(words: Iterable[str]) -> list[str]:
    return [word for word in words if word]


def _mixes_tokens(sublayer: Sublayer, block: Block, axes: Mapping[str, str]) -> bool:
    """Whether a sublayer mixes tokens or depths: by its axis where it is known, else by its place."""
    axis = axes.get(sublayer.mixer)
    if axis is None:
        return len(block.sublayers) == 1 or sublayer is not block.sublayers[-1]
    return axis != "channel"


def _label(sublayer: Sublayer) -> str:
    readers = sublayer.params.get("readers") or ()
    names = [r if isinstance(r, str) else str(r["name"]) for r in readers]
    return f"{sublayer.mixer}({'|'.join(names)})" if names else sublayer.mixer
