"""A plugin file with a mixer of many backends, which compute the same: quickly, slowly, wrongly, never, or not at all."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

from crossbreed import hookimpl
from crossbreed.core.contracts.capabilities import MixerCapabilities
from crossbreed.core.contracts.mixer import Mixer, MixerDescriptor
from crossbreed.core.errors import MissingCapability
from crossbreed.core.ledger import Cost, Work

BACKENDS = ("reference", "absent", "deadly", "hungry", "quick", "stuck", "wrong")
SLOW_S = 0.02
"""What a pass of the reference takes at least."""


class RivalConfig(BaseModel):
    """able: backends that can serve beside the reference, which ``auto`` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    able: tuple[str, ...] = ("quick",)


class Rival(Mixer, nn.Module):
    """A linear map of each token."""

    def __init__(self, config: RivalConfig, build: Any) -> None:
        nn.Module.__init__(self)
        self.backend = "reference" if build.backend == "auto" else build.backend
        if self.backend not in ("reference", *config.able):
            raise MissingCapability(f"backend {self.backend!r} of mixer 'rival' is not installed")
        self.inner = nn.Linear(build.d_model, build.d_model, bias=False)

    def forward(self, x_BTD, context, state, read_BT=None):
        assert len(context.row_id_B) == len(x_BTD)
        if self.backend == "reference" and context.training:
            time.sleep(SLOW_S)
        elif self.backend == "deadly":
            os._exit(3)
        elif self.backend == "hungry":
            raise torch.OutOfMemoryError("the device is full")
        elif self.backend == "stuck":
            time.sleep(600)
        y_BTD = self.inner(x_BTD)
        if self.backend == "wrong":
            y_BTD = y_BTD.roll(1, 1)
        return (y_BTD if read_BT is None else y_BTD * read_BT[..., None]), state

    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):
        square = d_model * d_model
        read = Work.product(2.0 * square, weights=square)
        return Cost(reads=(read,), parameters=square, active_parameters=square)


@hookimpl
def register_mixers():
    able = MixerCapabilities(axis="channel", backends=BACKENDS)
    return [MixerDescriptor("rival", Rival, RivalConfig, able, "a linear map with many implementations")]
