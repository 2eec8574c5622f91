"""A router in 20 lines: run a block only where the model itself is unsure of the next token."""

import torch
from pydantic import BaseModel, Field

from crossbreed import Decision, Router, RouterCapabilities, RouterDescriptor, hookimpl


class Config(BaseModel, frozen=True, extra="forbid"):
    threshold: float = Field(default=0.5, ge=0, le=1)


class FixedGate(Router, torch.nn.Module):
    """Choose 1 (run) where normalised entropy exceeds ``threshold``: no statistics, no gradient."""

    def __init__(self, config, build):
        super().__init__()
        self.threshold = config.threshold

    def forward(self, h_BTD, context, state):
        return Decision((context.entropy(h_BTD) > self.threshold).long()), state


@hookimpl
def register_routers():
    able = RouterCapabilities(sites=("gate", "halt"))
    return [RouterDescriptor("fixed_gate", FixedGate, Config, able, "runs where entropy exceeds a threshold")]
