"""A plugin file for the tests of analytics: routers whose decisions can be written down beforehand."""

from __future__ import annotations

import torch
from pydantic import BaseModel

from crossbreed import Decision, Router, RouterCapabilities, RouterDescriptor, hookimpl


class EveryConfig(BaseModel, extra="forbid"):
    """Choice 1 at every ``n``-th position; in one-token decode, ``late`` positions later."""

    n: int = 3
    late: int = 0


class Every(Router, torch.nn.Module):
    def __init__(self, config, build):
        super().__init__()
        self.config = config

    def forward(self, h_BTD, context, state):
        shift = self.config.late if context.phase == "decode" else 0
        return Decision(((context.positions_BT - shift) % self.config.n == 0).long()), state


class UnsureConfig(BaseModel, extra="forbid"):
    """Choice 1 where the output head's entropy is above ``above``."""

    above: float = 0.5


class Unsure(Router, torch.nn.Module):
    def __init__(self, config, build):
        super().__init__()
        self.config = config

    def forward(self, h_BTD, context, state):
        return Decision((context.entropy(h_BTD) > self.config.above).long()), state


@hookimpl
def register_routers():
    able = RouterCapabilities(sites=("gate", "mode", "halt"), max_choices=2)
    return [
        RouterDescriptor("every", Every, EveryConfig, able, "every n-th position"),
        RouterDescriptor("unsure", Unsure, UnsureConfig, able, "where entropy is high"),
    ]
