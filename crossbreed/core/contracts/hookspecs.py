"""All hooks of crossbreed, on one screen. Each returns descriptors of what the plugin offers."""

from __future__ import annotations

import pluggy

from crossbreed.core.contracts.cost import CostModelDescriptor
from crossbreed.core.contracts.depth import DepthPolicyDescriptor
from crossbreed.core.contracts.mixer import MixerDescriptor
from crossbreed.core.contracts.router import RouterDescriptor
from crossbreed.core.contracts.space import SearchSpaceDescriptor
from crossbreed.core.contracts.task import TaskDescriptor

PROJECT = "crossbreed"
"""Name of the hook markers and of the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_mixers() -> list[MixerDescriptor]:  # type: ignore[empty-body]
    """Offer mixers along the sequence, depth or channel axis."""


@hookspec
def register_routers() -> list[RouterDescriptor]:  # type: ignore[empty-body]
    """Offer routers for the gate, mode or halt site."""


@hookspec
def register_depth_policies() -> list[DepthPolicyDescriptor]:  # type: ignore[empty-body]
    """Offer ways to repeat a stage's blocks over depth."""


@hookspec
def register_cost_models() -> list[CostModelDescriptor]:  # type: ignore[empty-body]
    """Offer predictions of what an architecture costs."""


@hookspec
def register_tasks() -> list[TaskDescriptor]:  # type: ignore[empty-body]
    """Offer tasks to train and judge candidates on."""


@hookspec
def register_search_spaces() -> list[SearchSpaceDescriptor]:  # type: ignore[empty-body]
    """Offer spaces of candidate architectures."""
