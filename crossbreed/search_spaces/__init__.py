"""Built-in search spaces. Importing this imports no torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from crossbreed.core.contracts.hookspecs import hookimpl
from crossbreed.core.contracts.space import SearchSpaceDescriptor


class LayerHybridsConfig(BaseModel):
    """layers: sequence-and-channel layers of a layered candidate; 2 is the least in which layers can differ."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int = Field(default=2, ge=1, le=64)


@hookimpl
def register_search_spaces() -> list[SearchSpaceDescriptor]:
    return [
        SearchSpaceDescriptor(
            name="layer_hybrids",
            factory="crossbreed.search_spaces.layer_hybrids:LayerHybrids",
            config=LayerHybridsConfig,
            summary="a sequence mixer for each layer, gates on attention, modes of a multi-mixer, repeats over depth",
        )
    ]
