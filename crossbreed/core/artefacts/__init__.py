"""Where studies keep files: a folder, or a store behind any fsspec URL, under names that cannot leave it."""

from crossbreed.core.artefacts.base import Artefacts
from crossbreed.core.artefacts.names import confined
from crossbreed.core.artefacts.patience import FULL, patiently

__all__ = ["FULL", "Artefacts", "confined", "patiently"]
