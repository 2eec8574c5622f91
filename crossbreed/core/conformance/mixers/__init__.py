"""Rules of mixers. Importing this registers them."""

from __future__ import annotations

from crossbreed.core.conformance.mixers import backends, cost, held, reading, rows, shapes, time, weights  # noqa: F401
from crossbreed.core.conformance.mixers.subject import MixerSubject

SUBJECT = MixerSubject
