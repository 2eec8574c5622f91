"""Rules of mixers. Importing this registers them."""

from __future__ import annotations

from crossbreed.core.conformance.mixers import (  # noqa: F401
    backends,
    cost,
    depths,
    held,
    reading,
    rows,
    shapes,
    time,
    weights,
)
from crossbreed.core.conformance.mixers.subject import MixerSubject

SUBJECT = MixerSubject
