"""crossbreed: budget-matched architecture search for hybrid sequence models.

A small lazy facade: importing it costs nothing heavy. Plugin authors need only names from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossbreed.core.budget.budget import Budget
    from crossbreed.core.budget.matcher import match
    from crossbreed.core.contracts.capabilities import MixerCapabilities, RouterCapabilities
    from crossbreed.core.contracts.context import Context
    from crossbreed.core.contracts.cost import CostModel, CostModelDescriptor
    from crossbreed.core.contracts.depth import DepthPolicy, DepthPolicyDescriptor
    from crossbreed.core.contracts.hookspecs import hookimpl
    from crossbreed.core.contracts.mixer import Mixer, MixerBuild, MixerDescriptor, Reader
    from crossbreed.core.contracts.router import Decision, Router, RouterBuild, RouterDescriptor
    from crossbreed.core.contracts.space import SearchSpace, SearchSpaceDescriptor
    from crossbreed.core.contracts.task import Task, TaskDescriptor
    from crossbreed.core.genome import Architecture
    from crossbreed.core.host import Host
    from crossbreed.core.search.study import Study
    from crossbreed.core.search.study_file import StudyFile

__version__ = "0.1.0"

_HOMES = {
    "crossbreed.core.budget.budget": ("Budget",),
    "crossbreed.core.budget.matcher": ("match",),
    "crossbreed.core.contracts.capabilities": ("MixerCapabilities", "RouterCapabilities"),
    "crossbreed.core.contracts.context": ("Context",),
    "crossbreed.core.contracts.cost": ("CostModel", "CostModelDescriptor"),
    "crossbreed.core.contracts.depth": ("DepthPolicy", "DepthPolicyDescriptor"),
    "crossbreed.core.contracts.hookspecs": ("hookimpl",),
    "crossbreed.core.contracts.mixer": ("Mixer", "MixerBuild", "MixerDescriptor", "Reader"),
    "crossbreed.core.contracts.router": ("Decision", "Router", "RouterBuild", "RouterDescriptor"),
    "crossbreed.core.contracts.space": ("SearchSpace", "SearchSpaceDescriptor"),
    "crossbreed.core.contracts.task": ("Task", "TaskDescriptor"),
    "crossbreed.core.genome": ("Architecture",),
    "crossbreed.core.host": ("Host",),
    "crossbreed.core.search.study": ("Study",),
    "crossbreed.core.search.study_file": ("StudyFile",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Architecture",
    "Budget",
    "Context",
    "CostModel",
    "CostModelDescriptor",
    "Decision",
    "DepthPolicy",
    "DepthPolicyDescriptor",
    "Host",
    "Mixer",
    "MixerBuild",
    "MixerCapabilities",
    "MixerDescriptor",
    "Reader",
    "Router",
    "RouterBuild",
    "RouterCapabilities",
    "RouterDescriptor",
    "SearchSpace",
    "SearchSpaceDescriptor",
    "Study",
    "StudyFile",
    "Task",
    "TaskDescriptor",
    "hookimpl",
    "match",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'crossbreed' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
