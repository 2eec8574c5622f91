"""Offers the mixer ``my_mixer``. Importing this imports no torch, so that listing plugins stays quick."""

from __future__ import annotations

from pydantic import BaseModel, Field

from crossbreed import Integers, MixerCapabilities, MixerDescriptor, hookimpl


class MyMixerConfig(BaseModel, frozen=True, extra="forbid"):
    """width: channels between the two projections."""

    width: int = Field(default=32, ge=1)


@hookimpl
def register_mixers() -> list[MixerDescriptor]:
    return [
        MixerDescriptor(
            name="my_mixer",
            # Imported when a model is built or a cost is asked for.
            factory="crossbreed.cli.templates.mixer_package.layer:MyMixer",
            config=MyMixerConfig,
            # Tokens that do not read are computed and masked (``dense`` execution), and charged so.
            capabilities=MixerCapabilities("sequence"),
            summary="each token sees the one before it",
            # What a budget may move to meet its FLOPs and parameters.
            free={"width": Integers(1, 4096)},
        )
    ]
