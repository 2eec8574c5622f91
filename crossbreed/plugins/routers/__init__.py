"""Built-in routers. Importing this imports no torch; the classes load when a model is built.

Legend for tensor names: B batch, T tokens, D model width, N choices, R runs of tokens of one segment.
"""

from __future__ import annotations

from crossbreed.core.contracts.capabilities import RouterCapabilities
from crossbreed.core.contracts.hookspecs import hookimpl
from crossbreed.core.contracts.router import RouterDescriptor
from crossbreed.core.contracts.space import Choices, Floats
from crossbreed.plugins.routers.configs import (
    DistilledConfig,
    EntropyGateConfig,
    LearnedConfig,
    OracleConfig,
    SegmentRandomConfig,
)

MODES = ("evaluate", "train")
"""Settings of every built-in router that hold choices."""
SEGMENTS = Choices((1, 4, 8, 16))
"""Segment lengths a search draws from; 1 is a choice per token."""


@hookimpl
def register_routers() -> list[RouterDescriptor]:
    return [
        RouterDescriptor(
            name="entropy_gate",
            factory="crossbreed.plugins.routers.entropy_gate:EntropyGate",
            config=EntropyGateConfig,
            capabilities=RouterCapabilities(
                sites=("gate", "mode", "halt"), feedback_sites=("mode",), max_choices=2
            ),
            summary="spend compute where the model's own next-token entropy exceeds a running threshold (AMOR)",
            choices=MODES,
            ranges={"kappa": Floats(0.0, 1.0), "segment": SEGMENTS},
        ),
        RouterDescriptor(
            name="segment_random",
            factory="crossbreed.plugins.routers.segment_random:SegmentRandom",
            config=SegmentRandomConfig,
            capabilities=RouterCapabilities(sites=("gate", "mode", "halt")),
            summary="an independent draw for each segment at fixed odds (Oryx's training schedule)",
            choices=MODES,
            ranges={"probability": Floats(0.1, 0.9), "segment": Choices((4, 8, 16))},
        ),
        RouterDescriptor(
            name="learned",
            factory="crossbreed.plugins.routers.learned:Learned",
            config=LearnedConfig,
            capabilities=RouterCapabilities(sites=("gate", "mode", "halt"), gradient=True),
            summary="a linear score with straight-through gradient, held near a target rate by a loss",
            choices=MODES,
            ranges={
                "target_rate": Floats(0.1, 0.6),
                "loss_weight": Floats(0.1, 10.0, log=True),
                "segment": SEGMENTS,
            },
        ),
        RouterDescriptor(
            name="distilled",
            factory="crossbreed.plugins.routers.distilled:Distilled",
            config=DistilledConfig,
            capabilities=RouterCapabilities(sites=("gate", "halt"), max_choices=2, fitted=True),
            summary="a small network that predicts a trained entropy gate's entropies (`crossbreed fit-router`)",
            choices=MODES,
        ),
        RouterDescriptor(
            name="oracle",
            factory="crossbreed.plugins.routers.oracle:Oracle",
            config=OracleConfig,
            capabilities=RouterCapabilities(sites=("gate", "mode", "halt"), needs_labels=True),
            summary="the expensive choice where the task scores a position: an upper bound, never for generation",
            choices=MODES,
        ),
    ]
