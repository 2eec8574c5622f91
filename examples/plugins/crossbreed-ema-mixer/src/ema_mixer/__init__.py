"""Offers the mixer ``ema``. Importing this imports no torch, so that listing plugins stays quick."""

from __future__ import annotations

from pydantic import BaseModel, Field

from crossbreed import Choices, Integers, MixerCapabilities, MixerDescriptor, hookimpl


class EmaConfig(BaseModel, frozen=True, extra="forbid"):
    """heads: averages with a decay of their own each. head_size: channels of a head.

    shortest, longest: half-lives in tokens that the decays start between, spread over the heads.
    """

    heads: int = Field(default=4, ge=1)
    head_size: int = Field(default=16, ge=1)
    shortest: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    longest: float = Field(default=64.0, gt=0, allow_inf_nan=False)

    @property
    def width(self) -> int:
        return self.heads * self.head_size


@hookimpl
def register_mixers() -> list[MixerDescriptor]:
    return [
        MixerDescriptor(
            name="ema",
            factory="ema_mixer.layer:Ema",
            config=EmaConfig,
            capabilities=MixerCapabilities("sequence"),
            summary="an exponential moving average with a learned decay a head, read through a gate",
            ranges={"heads": Choices((2, 4, 8))},
            # A budget may widen or narrow it by this; heads only where a study names them.
            free={"head_size": Integers(1, 256)},
            on_request={"heads": Integers(1, 64)},
        )
    ]
