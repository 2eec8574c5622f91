"""All presets by name."""

from __future__ import annotations

from functools import cache

from crossbreed.core.errors import ConfigError, nearest
from crossbreed.presets import amor, dreamer, oryx, rivals
from crossbreed.presets.preset import Preset


@cache
def presets() -> dict[str, Preset]:
    """Every preset by name, published systems before their rivals."""
    systems = (*amor.presets(), *oryx.presets(), *dreamer.presets())
    listed = (*systems, *rivals.presets(), *oryx.baselines())
    return {preset.name: preset for preset in listed}


def preset(name: str) -> Preset:
    """One preset; raises ConfigError with the nearest name."""
    found = presets().get(name)
    if found is None:
        hint = nearest(name, presets()) or "; `crossbreed presets` lists them."
        raise ConfigError(f"unknown preset {name!r}{hint}")
    return found
