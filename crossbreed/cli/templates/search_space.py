"""my_search_space: a stack of layers, each with any sequence mixer that the study allows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from crossbreed import (
    Architecture,
    Block,
    ConfigError,
    Draw,
    SearchSpace,
    SearchSpaceDescriptor,
    Setting,
    Stage,
    Sublayer,
    hookimpl,
)


class MySearchSpaceConfig(BaseModel, frozen=True, extra="forbid"):
    """layers: layers in the stack."""

    layers: int = Field(default=2, ge=1, le=64)


class MySearchSpace(SearchSpace):
    """A draw becomes a genome. Sizes stay at their defaults: a budget moves them, to between half and twice of these."""

    config: MySearchSpaceConfig

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        # Only legal points: parts are picked by what they state, never by name, so that anybody's mixer takes part.
        mixers, channel = _mixers(setting, "sequence"), _mixers(setting, "channel")
        if not mixers:
            raise ConfigError("space 'my_search_space' needs a sequence mixer; the study allows none.")
        tail = (Sublayer(mixer=draw.choose("channel", channel)),) if channel else ()
        blocks = [
            Block(sublayers=(Sublayer(mixer=draw.choose(f"layer{i}", mixers)), *tail))
            for i in range(self.config.layers)
        ]
        return Architecture(
            vocab=setting.vocab, d_model=setting.d_model, stages=(Stage(blocks=tuple(blocks)),)
        )

    def starting_points(self, setting: Setting) -> list[dict[str, Any]]:
        """Draws to try first: every mixer is seen once before the sampler takes over."""
        channel = _mixers(setting, "channel")
        rest = {"channel": channel[0]} if channel else {}
        layers = range(self.config.layers)
        return [{f"layer{i}": mixer for i in layers} | rest for mixer in _mixers(setting, "sequence")]

    def family(self, architecture: Architecture) -> str:
        """A label for plots: architectures of one family differ only in numbers."""
        return "+".join(block.sublayers[0].mixer for block in architecture.stages[0].blocks)


def _mixers(setting: Setting, axis: str) -> list[str]:
    """Causal mixers of an axis that stand alone; one that holds readers would need a mode router."""
    offers = {name: setting.parts.descriptor("mixer", name) for name in setting.mixers}
    return [
        name
        for name, offer in offers.items()
        if offer.capabilities.axis == axis
        and offer.capabilities.causal
        and "readers" not in offer.config.model_fields
    ]


@hookimpl
def register_search_spaces() -> list[SearchSpaceDescriptor]:
    return [
        SearchSpaceDescriptor(
            name="my_search_space",
            factory=MySearchSpace,
            config=MySearchSpaceConfig,
            summary="a stack of layers, each with any sequence mixer",
        )
    ]
