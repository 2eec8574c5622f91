"""A router in 20 lines: run a block only where the model itself is unsure of the next token."""

import torch
from pydantic import BaseModel, Field

from crossbreed import Cost, Decision, Router, RouterCapabilities, RouterDescriptor, Work, hookimpl


class Config(BaseModel, frozen=True, extra="forbid"):
    threshold: float = Field(default=0.5, ge=0, le=1)


class FixedGate(Router, torch.nn.Module):
    """Choose 1 (run) where normalised entropy exceeds ``threshold``: no statistics, no gradient."""

    def __init__(self, config, build):
        super().__init__()
        self.threshold = config.threshold

    def forward(self, h_BTD, context, state):
        return Decision((context.entropy(h_BTD) > self.threshold).long()), state

    @staticmethod
    def cost(config, build, shape):
        probe = 2.0 * build.d_model * build.vocab  # the output head, for every token
        return Cost(write=Work(probe, probe, probe, probe, weights=probe / 2))


@hookimpl
def register_routers():
    able = RouterCapabilities(sites=("gate", "halt"))
    return [RouterDescriptor("fixed_gate", FixedGate, Config, able, "runs where entropy exceeds a threshold")]
