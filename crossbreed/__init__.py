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
    from crossbreed.core.contracts.depth import DepthPolicy, DepthPolicyDescriptor, Step
    from crossbreed.core.contracts.hookspecs import hookimpl
    from crossbreed.core.contracts.mixer import Mixer, MixerBuild, MixerDescriptor, Reader, StateSpec
    from crossbreed.core.contracts.parts import Parts
    from crossbreed.core.contracts.router import Decision, Router, RouterBuild, RouterDescriptor
    from crossbreed.core.contracts.space import (
        Choices,
        Draw,
        Floats,
        Integers,
        SearchSpace,
        SearchSpaceDescriptor,
        Setting,
    )
    from crossbreed.core.contracts.task import IGNORE, Batch, Score, Task, TaskDescriptor, Totals
    from crossbreed.core.errors import ConfigError
    from crossbreed.core.genome import Architecture, Block, Stage, Sublayer
    from crossbreed.core.host import Host
    from crossbreed.core.ledger import Cost, Ledger, Shape, Work
    from crossbreed.core.search.study import Study
    from crossbreed.core.search.study_file import StudyFile

__version__ = "0.1.0"

_HOMES = {
    "crossbreed.core.budget.budget": ("Budget",),
    "crossbreed.core.budget.matcher": ("match",),
    "crossbreed.core.contracts.capabilities": ("MixerCapabilities", "RouterCapabilities"),
    "crossbreed.core.contracts.context": ("Context",),
    "crossbreed.core.contracts.cost": ("CostModel", "CostModelDescriptor"),
    "crossbreed.core.contracts.depth": ("DepthPolicy", "DepthPolicyDescriptor", "Step"),
    "crossbreed.core.contracts.hookspecs": ("hookimpl",),
    "crossbreed.core.contracts.mixer": ("Mixer", "MixerBuild", "MixerDescriptor", "Reader", "StateSpec"),
    "crossbreed.core.contracts.parts": ("Parts",),
    "crossbreed.core.contracts.router": ("Decision", "Router", "RouterBuild", "RouterDescriptor"),
    "crossbreed.core.contracts.space": (
        "Choices",
        "Draw",
        "Floats",
        "Integers",
        "SearchSpace",
        "SearchSpaceDescriptor",
        "Setting",
    ),
    "crossbreed.core.contracts.task": ("IGNORE", "Batch", "Score", "Task", "TaskDescriptor", "Totals"),
    "crossbreed.core.errors": ("ConfigError",),
    "crossbreed.core.genome": ("Architecture", "Block", "Stage", "Sublayer"),
    "crossbreed.core.host": ("Host",),
    "crossbreed.core.ledger": ("Cost", "Ledger", "Shape", "Work"),
    "crossbreed.core.search.study": ("Study",),
    "crossbreed.core.search.study_file": ("StudyFile",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "IGNORE",
    "Architecture",
    "Batch",
    "Block",
    "Budget",
    "Choices",
    "ConfigError",
    "Context",
    "Cost",
    "CostModel",
    "CostModelDescriptor",
    "Decision",
    "DepthPolicy",
    "DepthPolicyDescriptor",
    "Draw",
    "Floats",
    "Host",
    "Integers",
    "Ledger",
    "Mixer",
    "MixerBuild",
    "MixerCapabilities",
    "MixerDescriptor",
    "Parts",
    "Reader",
    "Router",
    "RouterBuild",
    "RouterCapabilities",
    "RouterDescriptor",
    "Score",
    "SearchSpace",
    "SearchSpaceDescriptor",
    "Setting",
    "Shape",
    "Stage",
    "StateSpec",
    "Step",
    "Study",
    "StudyFile",
    "Sublayer",
    "Task",
    "TaskDescriptor",
    "Totals",
    "Work",
    "hookimpl",
    "match",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'crossbreed' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
