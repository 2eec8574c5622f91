"""Rules of mixers. Importing this registers them, in the order in which they are judged."""

from __future__ import annotations

from crossbreed.core.conformance.mixers import shapes, time, rows, cost, reading, weights  # noqa: F401, I001
from crossbreed.core.conformance.mixers.subject import MixerSubject

SUBJECT = MixerSubject
