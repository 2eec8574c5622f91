"""What search spaces are asked with in tests: fixed and drawn answers, a setting, a plugin with a mixer and a router."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from crossbreed.core.contracts.space import SearchSpace, Setting
from crossbreed.core.host import Registry

PLUGIN = """
import torch
from pydantic import BaseModel, ConfigDict
from crossbreed import hookimpl
from crossbreed.core.contracts.capabilities import MixerCapabilities, RouterCapabilities
from crossbreed.core.contracts.mixer import Mixer, MixerDescriptor
from crossbreed.core.contracts.router import Decision, Router, RouterDescriptor
from crossbreed.core.contracts.space import Choices, Integers
from crossbreed.core.ledger import Cost, Work

class Every(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    step: int = 2

class Mean(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    width: int = 48

class EveryNth(Router, torch.nn.Module):
    def __init__(self, config, build):
        super().__init__()
        self.step = config.step
    def forward(self, h_BTD, context, state):
        return Decision((context.positions_BT % self.step == 0).long()), state

class RunningMean(Mixer, torch.nn.Module):
    @staticmethod
    def cost(config, d_model, shape, depths=1, parts=None):
        flops = 4 * d_model * config.width
        return Cost(Work.product(flops), (Work(),), 2 * d_model * config.width, 2 * d_model * config.width)

@hookimpl
def register_routers():
    able = RouterCapabilities(sites=("gate", "mode"))
    return [RouterDescriptor("every_nth", EveryNth, Every, able, "fixed pattern", {"step": Choices((2, 3))})]

@hookimpl
def register_mixers():
    able = MixerCapabilities(axis="sequence")
    free = {"width": Integers(4, 512)}
    return [MixerDescriptor("running_mean", RunningMean, Mean, able, "mean of the past", free=free)]
"""


class Fixed:
    """Answers every draw from a dict, and fails on a draw that is not in it or not legal."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.asked = answers, set[str]()

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        self.asked.add(name)
        assert self.answers[name] in options, f"{name}: {self.answers[name]} not in {options}"
        return self.answers[name]

    def integer(self, name: str, low: int, high: int, step: int = 1) -> int:
        return int(self.choose(name, range(low, high + 1, step)))

    def number(self, name: str, low: float, high: float, log: bool = False) -> float:
        self.asked.add(name)
        assert low <= self.answers[name] <= high
        return float(self.answers[name])


class Drawn:
    """Hypothesis decides; the same name is answered the same way."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.answers: dict[str, Any] = {}

    def choose(self, name: str, options: Sequence[Any]) -> Any:
        assert name not in self.answers, f"{name} is asked twice"
        self.answers[name] = self.data.draw(st.sampled_from(list(options)), label=name)
        return self.answers[name]

    def integer(self, name: str, low: int, high: int, step: int = 1) -> int:
        return int(self.choose(name, range(low, high + 1, step)))

    def number(self, name: str, low: float, high: float, log: bool = False) -> float:
        self.answers[name] = self.data.draw(st.floats(low, high), label=name)
        return float(self.answers[name])


def setting(parts: Registry, **changes: Any) -> Setting:
    names = {
        "mixers": tuple(parts.names("mixer")),
        "routers": tuple(parts.names("router")),
        "depth": tuple(parts.names("depth")),
    }
    return Setting(**{"vocab": 64, "length": 32, "d_model": 64, "parts": parts, **names, **changes})


def built(parts: Registry, name: str, **params: Any) -> SearchSpace:
    """A registered space with its settings."""
    made: SearchSpace = parts.factory("space", name)(parts.config("space", name, params))
    return made
