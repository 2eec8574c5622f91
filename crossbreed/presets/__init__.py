"""Published systems and their rivals as genomes. Building one allocates no weights and imports no torch."""

from __future__ import annotations

from crossbreed.presets.catalogue import preset, presets
from crossbreed.presets.preset import Preset, Published

__all__ = ["Preset", "Published", "preset", "presets"]
