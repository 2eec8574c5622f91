"""Settings of the built-in mixers and their readers. Imports no torch; every model is frozen and hashable.

Each field's description says why its default is what it is. "Equal to the heads" is written None, so that a budget or a
search can change the number of heads alone.
"""

from __future__ import annotations

from crossbreed.plugins.mixers.configs.channel import ExpertsConfig, SwiGLUConfig
from crossbreed.plugins.mixers.configs.common import (
    Activation,
    Config,
    DepthEncoding,
    Norm,
    NormPlace,
    ShortConv,
)
from crossbreed.plugins.mixers.configs.depth import DepthAttentionConfig
from crossbreed.plugins.mixers.configs.multi import MultiMixerConfig
from crossbreed.plugins.mixers.configs.readers import (
    DecaySettings,
    DeltaSettings,
    SoftmaxSettings,
    SsdSettings,
)
from crossbreed.plugins.mixers.configs.routing import ProjectionExperts, RoutingSettings
from crossbreed.plugins.mixers.configs.sequence import AttentionConfig, GatedDeltaNetConfig, Mamba2Config

__all__ = [
    "Activation",
    "AttentionConfig",
    "Config",
    "DecaySettings",
    "DeltaSettings",
    "DepthAttentionConfig",
    "DepthEncoding",
    "ExpertsConfig",
    "GatedDeltaNetConfig",
    "Mamba2Config",
    "MultiMixerConfig",
    "Norm",
    "NormPlace",
    "ProjectionExperts",
    "RoutingSettings",
    "ShortConv",
    "SoftmaxSettings",
    "SsdSettings",
    "SwiGLUConfig",
]
