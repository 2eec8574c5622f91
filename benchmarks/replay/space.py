"""The search space whose every architecture has a recorded learning curve: a factorial grid of 304 small hybrids.

A plugin like anybody's: ``crossbreed search study.yaml --plugin benchmarks/replay/space.py`` searches it for real.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from crossbreed import Architecture, SearchSpace, SearchSpaceDescriptor, hookimpl
from crossbreed.core.contracts.space import Draw, Setting

MIXERS = ("mamba2", "gated_deltanet", "attention")
GATES = ("none", "learned", "entropy_gate")


class ReplayConfig(BaseModel):
    """Nothing to set: the grid is what was recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ReplayGrid(SearchSpace):
    """Two layers, each a sequence mixer and a channel mixer; width, heads, passes and channel width are the other factors.

    Attention layers may be gated, so the gate is a factor only where there is attention: 19 pairs of mixers with their
    gates x 2 widths x 2 head counts x 1 or 2 passes x 2 channel widths = 304.
    """

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        layers = [draw.choose(f"layer{i}.sequence", MIXERS) for i in range(2)]
        gate = draw.choose("gate", GATES) if "attention" in layers else "none"
        d_model = draw.choose("d_model", (32, 48))
        heads = draw.choose("heads", (2, 4))
        passes = draw.choose("passes", (1, 2))
        hidden = d_model * draw.choose("channel", (1, 3))
        blocks: list[dict[str, Any]] = []
        for mixer in layers:
            mixing = {"sublayers": [_sequence(mixer, d_model, heads)]}
            if mixer == "attention" and gate != "none":
                mixing["gate"] = {"name": gate}
            blocks += [mixing, {"sublayers": [{"mixer": "swiglu", "params": {"hidden": hidden}}]}]
        depth = {"name": "recurrent", "repeats": passes} if passes > 1 else {"name": "layered"}
        stage = {"blocks": blocks, "depth": depth}
        data = {"vocab": setting.vocab, "d_model": d_model, "stages": [stage]}
        return Architecture.model_validate(data)

    def starting_points(self, setting: Setting) -> list[dict[str, Any]]:
        """Every mixer alone, then a hybrid with each gate, at the smallest sizes: what each part does is seen once."""
        small = {"d_model": 32, "heads": 2, "passes": 1, "channel": 1}
        alone = [{"layer0.sequence": m, "layer1.sequence": m, **small} for m in MIXERS]
        hybrid = {"layer0.sequence": MIXERS[0], "layer1.sequence": "attention", **small}
        return [{**point, "gate": "none"} if "attention" in point.values() else point for point in alone] + [
            {**hybrid, "gate": gate} for gate in GATES
        ]

    def family(self, architecture: Architecture) -> str:
        blocks = architecture.stages[0].blocks
        names = dict.fromkeys(sub.mixer for block in blocks for sub in block.sublayers)
        mixers = "+".join(name for name in names if name != "swiglu")
        gates = dict.fromkeys(block.gate.name for block in blocks if block.gate is not None)
        return mixers + "".join(f"/gate:{name}" for name in gates)


def _sequence(mixer: str, d_model: int, heads: int) -> dict[str, Any]:
    """A mixer whose head sizes follow from the width, with a short convolution in every one."""
    size = d_model // heads
    params: dict[str, Any]
    if mixer == "attention":
        params = {"heads": heads, "head_size": size, "short_conv": {"width": 4}}
    elif mixer == "mamba2":
        params = {"heads": heads, "head_size": 2 * size, "state_size": 16}
    else:
        params = {"heads": heads, "key_size": size, "value_size": 2 * size}
    return {"mixer": mixer, "params": params}


@hookimpl
def register_search_spaces() -> list[SearchSpaceDescriptor]:
    return [
        SearchSpaceDescriptor(
            name="replay_grid",
            factory=ReplayGrid,
            config=ReplayConfig,
            summary="A factorial grid of 304 small hybrids with recorded learning curves.",
        )
    ]
