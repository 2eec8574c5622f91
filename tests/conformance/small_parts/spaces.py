"""A small search space that is right, and how to offer it under the name ``small``. Broken ones differ in one line."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from crossbreed import Architecture, Block, SearchSpace, SearchSpaceDescriptor, Stage, Sublayer
from crossbreed.core.contracts.space import Draw, Setting
from crossbreed.core.errors import ConfigError
from crossbreed.core.genome import Router


class Config(BaseModel, frozen=True, extra="forbid"):
    pass


class Tower(SearchSpace):
    """One to three equal blocks of one sequence mixer, behind a gate or not."""

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        names = self.mixers(setting)
        if not names:
            raise ConfigError(f"space 'small' needs a sequence mixer, the study allows {setting.mixers}")
        mixer, gate = self.mixer(draw, names), draw.choose("gate", ["none", *self.gates(setting)])
        block = Block(
            sublayers=(Sublayer(mixer=mixer, params=self.params(mixer, setting)),),
            gate=None if gate == "none" else Router(name=gate),
        )
        blocks = (block,) * draw.integer("blocks", 1, 3)
        return Architecture(vocab=setting.vocab, d_model=self.width(setting), stages=(Stage(blocks=blocks),))

    def mixers(self, setting: Setting) -> list[str]:
        found = []
        for name in setting.mixers:
            descriptor = setting.parts.descriptor("mixer", name)
            if descriptor.capabilities.axis == "sequence" and "readers" not in descriptor.config.model_fields:
                found.append(name)
        return found

    def gates(self, setting: Setting) -> list[str]:
        def stands(name: str) -> bool:
            return "gate" in setting.parts.descriptor("router", name).capabilities.sites

        return [name for name in setting.routers if stands(name)]

    def mixer(self, draw: Draw, names: list[str]) -> str:
        return str(draw.choose("mixer", names))

    def params(self, mixer: str, setting: Setting) -> dict[str, Any]:
        return {}

    def width(self, setting: Setting) -> int:
        return setting.d_model

    def starting_points(self, setting: Setting) -> list[dict[str, Any]]:
        return [{"mixer": name, "gate": "none", "blocks": 2} for name in self.mixers(setting)]

    def family(self, architecture: Architecture) -> str:
        return architecture.stages[0].blocks[0].sublayers[0].mixer


def offered(cls: Any = Tower, *, config: Any = Config) -> list[SearchSpaceDescriptor]:
    return [SearchSpaceDescriptor("small", cls, config, "a small search space")]
