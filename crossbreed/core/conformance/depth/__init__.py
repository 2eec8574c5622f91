"""Rules of depth policies. Importing this registers them, in the order in which they are judged."""

from __future__ import annotations

from crossbreed.core.conformance.depth import plan, running  # noqa: F401
from crossbreed.core.conformance.depth.subject import DepthSubject

SUBJECT = DepthSubject
