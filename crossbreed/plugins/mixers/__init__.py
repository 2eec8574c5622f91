"""Built-in mixers. Importing this imports no torch; the classes load when a model is built or a cost is asked for.

Legend for tensor names: B batch, T tokens, S key slots, D model width, H output heads, Q query heads, G key/value heads,
K key size, V value size, C channels, W convolution width, E experts, F expert width, J expert slots of a token, L depths,
N choices or tokens.
"""

from __future__ import annotations

from crossbreed.core.contracts.capabilities import CUDA, Execution, MixerCapabilities
from crossbreed.core.contracts.hookspecs import hookimpl
from crossbreed.core.contracts.mixer import MixerDescriptor
from crossbreed.core.contracts.space import Choices, Integers
from crossbreed.core.ledger import Phase
from crossbreed.plugins.mixers import backends
from crossbreed.plugins.mixers.backends import REFERENCE
from crossbreed.plugins.mixers.configs import (
    AttentionConfig,
    DeltaSettings,
    DepthAttentionConfig,
    ExpertsConfig,
    GatedDeltaNetConfig,
    Mamba2Config,
    MultiMixerConfig,
    RoutingSettings,
    SoftmaxSettings,
    SsdSettings,
    SwiGLUConfig,
)
from crossbreed.plugins.mixers.configs.multi import READER_SETTINGS
from crossbreed.plugins.mixers.configs.routing import ProjectionSettings
from crossbreed.plugins.mixers.plan import DELTA, SOFTMAX, SSD

SEQUENCE = "crossbreed.plugins.mixers.sequence:SequenceMixer"
INFERENCE_SKIPS: dict[Phase, Execution] = {"train": "dense", "prefill": "sparse", "decode": "sparse"}
ALWAYS_SKIPS: dict[Phase, Execution] = {"train": "sparse", "prefill": "sparse", "decode": "sparse"}
HEADS = Integers(1, 256)
PROJECTIONS = {
    "projection_experts.experts": Integers(1, 1024),
    "projection_experts.top_k": Integers(1, 64),
    "projection_experts.router_key": Integers(4, 256, 4),
}
"""Sizes of routed projections, where a mixer has them."""


def projections_see_depth(config: ProjectionSettings) -> bool:
    """Readers do not look at their depth; routed projections may."""
    experts = config.projection_experts
    return experts is not None and experts.see_depth()


def readers_see_depth(config: MultiMixerConfig) -> bool:
    """The same with readers of plugins, which are told their depth."""
    return projections_see_depth(config) or any(r.name not in READER_SETTINGS for r in config.readers)


@hookimpl
def register_mixers() -> list[MixerDescriptor]:
    return [
        MixerDescriptor(
            name="attention",
            factory=SEQUENCE,
            config=AttentionConfig,
            capabilities=MixerCapabilities(
                "sequence",
                reader=True,
                execution=INFERENCE_SKIPS,
                backends=(REFERENCE, *backends.SOFTMAX),
                backend_needs={"sdpa": (CUDA,)},
            ),
            summary="causal softmax attention: rotary positions, grouped queries, sliding window",
            sees_depth=projections_see_depth,
            ranges={
                "heads": Choices((2, 4, 8)),
                "kv_heads": Choices((None, 1, 2)),
                "window": Choices((None, 16, 64, 256)),
            },
            # Heads stay unless asked: they must remain a multiple of kv_heads. Sizes are even for whole rotary pairs.
            free={"head_size": Integers(2, 256, 2)},
            on_request={"heads": HEADS, "kv_heads": HEADS, "window": Integers(1, 65536), **PROJECTIONS},
            equal={"kv_heads": "heads"},
            reader=SOFTMAX,
            reader_config=SoftmaxSettings,
        ),
        MixerDescriptor(
            name="mamba2",
            factory=SEQUENCE,
            config=Mamba2Config,
            capabilities=MixerCapabilities(
                "sequence", reader=True, execution=INFERENCE_SKIPS, backends=(REFERENCE, *backends.SSD)
            ),
            summary="state-space duality with one decay per head (Mamba-2)",
            sees_depth=projections_see_depth,
            ranges={"heads": Choices((2, 4, 8)), "state_size": Integers(8, 64, 8)},
            free={"state_size": Integers(2, 256, 2), "head_size": Integers(2, 256, 2)},
            on_request={"heads": HEADS, "groups": HEADS, **PROJECTIONS},
            reader=SSD,
            reader_config=SsdSettings,
        ),
        MixerDescriptor(
            name="gated_deltanet",
            factory=SEQUENCE,
            config=GatedDeltaNetConfig,
            capabilities=MixerCapabilities(
                "sequence", reader=True, execution=INFERENCE_SKIPS, backends=(REFERENCE, *backends.DELTA)
            ),
            summary="the delta rule with a decay per head (Gated DeltaNet)",
            sees_depth=projections_see_depth,
            ranges={"heads": Choices((2, 4, 8)), "key_size": Integers(8, 64, 8)},
            free={"key_size": Integers(2, 256, 2), "value_size": Integers(2, 256, 2)},
            on_request={"heads": HEADS, "key_heads": HEADS, **PROJECTIONS},
            equal={"key_heads": "heads"},
            reader=DELTA,
            reader_config=DeltaSettings,
        ),
        MixerDescriptor(
            name="multi_mixer",
            factory=SEQUENCE,
            config=MultiMixerConfig,
            capabilities=MixerCapabilities(
                "sequence",
                execution=INFERENCE_SKIPS,
                backends=(REFERENCE, *dict.fromkeys((*backends.SOFTMAX, *backends.SSD, *backends.DELTA))),
                backend_needs={"sdpa": (CUDA,)},
            ),
            summary="several readers over one stream of keys and values, chosen by a mode router (Oryx)",
            sees_depth=readers_see_depth,
            ranges={"heads": Choices((2, 4, 8))},
            free={"head_size": Integers(2, 256, 2)},
            on_request={"heads": HEADS, **PROJECTIONS},
        ),
        MixerDescriptor(
            name="depth_attention",
            factory=SEQUENCE,
            config=DepthAttentionConfig,
            capabilities=MixerCapabilities("depth", execution=INFERENCE_SKIPS),
            summary="attention of each token over its own earlier depths (Dreamer)",
            ranges={"heads": Choices((1, 2, 4))},
            # Multiples of 4: the encoding of depth turns two halves in pairs.
            free={"head_size": Integers(4, 256, 4)},
            on_request={"heads": HEADS, **PROJECTIONS},
        ),
        MixerDescriptor(
            name="swiglu",
            factory="crossbreed.plugins.mixers.swiglu:SwiGLU",
            config=SwiGLUConfig,
            capabilities=MixerCapabilities("channel", execution=ALWAYS_SKIPS),
            summary="a gated feed-forward layer",
            sees_depth=lambda config: False,
            ranges={"hidden": Integers(32, 512, 16)},
            free={"hidden": Integers(4, 8192, 2)},
        ),
        MixerDescriptor(
            name="experts",
            factory="crossbreed.plugins.mixers.experts:Experts",
            config=ExpertsConfig,
            capabilities=MixerCapabilities("channel", execution=ALWAYS_SKIPS),
            summary="sparse experts with a shared one, routed by depth-aware queries (Dreamer)",
            sees_depth=RoutingSettings.see_depth,
            ranges={"experts": Choices((4, 8, 16, 32)), "top_k": Choices((2, 3, 4))},
            free={"experts": Integers(4, 4096), "hidden": Integers(4, 4096)},
            on_request={
                "top_k": Integers(1, 64),
                "shared": Integers(1, 8),
                "router_key": Integers(4, 256, 4),
            },
        ),
    ]
