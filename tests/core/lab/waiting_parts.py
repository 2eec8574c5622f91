"""A plugin file of mixers that a recorded training step can or cannot hold."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import BaseModel
from torch import nn

from crossbreed import hookimpl
from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.contracts.mixer import Mixer, MixerDescriptor, StateSpec
from crossbreed.core.ledger import Cost, Work


class NoConfig(BaseModel):
    pass


class Mapping(Mixer, nn.Module):
    """A linear map of each token."""

    def __init__(self, config: NoConfig, build: Any) -> None:
        nn.Module.__init__(self)
        self.map = nn.Linear(build.d_model, build.d_model, bias=False)

    def forward(self, x_BTD, context, state, read_BT=None):
        y_BTD = self.change(self.map(x_BTD), context)
        return (y_BTD if read_BT is None else y_BTD * read_BT[..., None]), state

    def change(self, y_BTD, context):
        return y_BTD

    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):
        weights = d_model**2
        return Cost(reads=(Work.product(2.0 * weights),), parameters=weights, active_parameters=weights)


class Dropping(Mapping):
    def change(self, y_BTD, context):
        return nn.functional.dropout(y_BTD, 0.3, training=context.training)


class Waiting(Mapping):
    """Waits for the device in every pass."""

    def change(self, y_BTD, context):
        return y_BTD * (2.0 if y_BTD.detach().abs().sum().item() > 0 else 1.0)


class Counting(Mapping):
    def change(self, y_BTD, context):
        return y_BTD / (1 + context.step)


class Drifting(Mapping):
    """Against the rules: its sign depends on how often it was called."""

    calls = 0

    def change(self, y_BTD, context):
        self.calls += 1
        return y_BTD if self.calls % 2 else -y_BTD


class Lengthening(Mapping):
    """Keeps a number on the host and computes with it, which a recording holds fast."""

    def forward(self, x_BTD, context, state, read_BT=None):
        length = 0 if state is None else int(state["length"])
        y_BTD, _ = super().forward(x_BTD, context, state, read_BT)
        return y_BTD.roll(length, -1), None if state is None else {
            "length": torch.tensor(length + x_BTD.shape[1])
        }

    def state_specs(self):
        return (StateSpec("length", (), "int64"),)

    def init_state(self, batch, *, slots=0, dtype=None, device=None):
        return {"length": torch.tensor(0)}


@hookimpl
def register_mixers():
    kinds = {
        "dropping": Dropping,
        "waiting": Waiting,
        "counting": Counting,
        "drifting": Drifting,
        "lengthening": Lengthening,
    }
    able = MixerCapabilities(axis="channel", same_in_training=False)
    return [
        MixerDescriptor(name, lambda kind=kind: kind, NoConfig, able, name) for name, kind in kinds.items()
    ]
