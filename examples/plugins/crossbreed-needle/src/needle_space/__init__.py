"""Offers the search space ``needle``: layers of one mixer, of which a single one is another, anywhere in the stack.

The question behind it: how much attention does a stack of recurrences need, and where?
"""

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


class NeedleConfig(BaseModel, frozen=True, extra="forbid"):
    """layers: layers in the stack, each a sequence mixer and, where the study allows one, a channel mixer."""

    layers: int = Field(default=3, ge=2, le=64)


class Needle(SearchSpace):
    """``config.layers`` layers of mixer ``hay`` but one, at ``place``, of mixer ``needle``; no routers, plain depth.

    Mixers are taken from the study by what they state, never by name, so a plugin's mixer takes part as a built-in does.
    """

    config: NeedleConfig

    def propose(self, draw: Draw, setting: Setting) -> Architecture:
        """Draws ``hay``, ``needle`` (another mixer), ``place`` (a layer) and ``channel``."""
        sequence, channel = _mixers(setting, "sequence"), _mixers(setting, "channel")
        if len(sequence) < 2:
            allowed = ", ".join(setting.mixers) or "none"
            raise ConfigError(
                f"space 'needle' needs 2 sequence mixers; the study allows the mixers: {allowed}."
            )
        hay = draw.choose("hay", sequence)
        # One name for each hay: what may be drawn depends on it, and an old answer must stay legal.
        needle = draw.choose(f"{hay}.needle", [name for name in sequence if name != hay])
        place = draw.integer("place", 0, self.config.layers - 1)
        tail = (Sublayer(mixer=draw.choose("channel", channel)),) if channel else ()
        layers = [
            Block(sublayers=(Sublayer(mixer=needle if layer == place else hay), *tail))
            for layer in range(self.config.layers)
        ]
        return Architecture(
            vocab=setting.vocab, d_model=setting.d_model, stages=(Stage(blocks=tuple(layers)),)
        )

    def starting_points(self, setting: Setting) -> list[dict[str, Any]]:
        """Every pair of mixers once, the needle last in the stack; then every other place of the first pair."""
        sequence, channel = _mixers(setting, "sequence"), _mixers(setting, "channel")
        rest = {"channel": channel[0]} if channel else {}
        last = self.config.layers - 1
        pairs = [(hay, needle) for hay in sequence for needle in sequence if hay != needle]
        points = [{"hay": hay, f"{hay}.needle": needle, "place": last, **rest} for hay, needle in pairs]
        return points + [{**point, "place": place} for point in points[:1] for place in range(last)]

    def family(self, architecture: Architecture) -> str:
        """``hay*2+needle``: the mixers by how often they stand, wherever that is."""
        names = [block.sublayers[0].mixer for block in architecture.stages[0].blocks]
        counts = {
            name: names.count(name) for name in sorted(names, key=lambda name: (-names.count(name), name))
        }
        return "+".join(name if count == 1 else f"{name}*{count}" for name, count in counts.items())


def _mixers(setting: Setting, axis: str) -> list[str]:
    """Mixers of an axis that stand alone: causal, and not made of readers that a mode router must choose from."""
    found = []
    for name in setting.mixers:
        offer = setting.parts.descriptor("mixer", name)
        if (
            offer.capabilities.axis == axis
            and offer.capabilities.causal
            and "readers" not in offer.config.model_fields
        ):
            found.append(name)
    return found


@hookimpl
def register_search_spaces() -> list[SearchSpaceDescriptor]:
    return [
        SearchSpaceDescriptor(
            name="needle",
            factory=Needle,
            config=NeedleConfig,
            summary="a stack of one mixer with a single layer of another, and where it stands",
        )
    ]
