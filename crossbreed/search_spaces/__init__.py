"""Built-in search spaces. Importing this imports no torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from crossbreed.core.contracts.hookspecs import hookimpl
from crossbreed.core.contracts.space import SearchSpaceDescriptor


class LayersConfig(BaseModel):
    """layers: sequence-and-channel layers of a layered candidate, and the starting depth of a repeated one; 2 is the least in
    which layers can differ."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int = Field(default=2, ge=1, le=64)


class OpenConfig(LayersConfig):
    """starts: starting points taken from each of the other spaces, its first ones."""

    starts: int = Field(default=6, ge=1)


@hookimpl
def register_search_spaces() -> list[SearchSpaceDescriptor]:
    return [
        SearchSpaceDescriptor(
            name="layer_hybrids",
            factory="crossbreed.search_spaces.layer_hybrids:LayerHybrids",
            config=LayersConfig,
            summary="a sequence mixer for each layer, gates on attention, modes of a multi-mixer, repeats over depth",
        ),
        SearchSpaceDescriptor(
            name="amor",
            factory="crossbreed.search_spaces.amor:Amor",
            config=LayersConfig,
            summary="a recurrent backbone and gated attention after it, or attention in, beside or instead of it (AMOR)",
        ),
        SearchSpaceDescriptor(
            name="oryx",
            factory="crossbreed.search_spaces.oryx:Oryx",
            config=LayersConfig,
            summary="equal layers whose readers share keys and values under a mode router, or of one mixer (Oryx)",
        ),
        SearchSpaceDescriptor(
            name="dreamer",
            factory="crossbreed.search_spaces.dreamer:Dreamer",
            config=LayersConfig,
            summary="a block over depth, sequence and channels, repeated with shared weights or layered (Dreamer)",
        ),
        SearchSpaceDescriptor(
            name="open",
            factory="crossbreed.search_spaces.open:Open",
            config=OpenConfig,
            summary="every architecture of the four other built-in spaces",
        ),
    ]
