"""Miniatures of the published systems and their rivals, by the functions that build the full-size presets."""

from __future__ import annotations

from crossbreed.presets.amor import AmorSizes, amor
from crossbreed.presets.oryx import OryxSizes, oryx

V = 23
AMOR = AmorSizes(V, 16, 2, 20, head_size=8, state_size=6)
ORYX = OryxSizes(V, 16, 2, 2, head_size=8, segment=4)

BODIES = {
    "amor": amor(AMOR, "gdn", blocks=2),
    "oryx": oryx(ORYX, "tm"),
}
"""The three bodies that routers are put into."""
