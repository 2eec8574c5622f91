"""Settings of the built-in depth policies."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class LayeredConfig(BaseModel):
    """No settings: the number of repeats is the genome's."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RecurrentConfig(BaseModel):
    """inject: add the stage's input to the stream again at the start of every repeat after the first. Off by default:
    the plain loop is what Dreamer publishes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inject: bool = False
