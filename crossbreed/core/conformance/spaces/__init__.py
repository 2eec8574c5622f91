"""Rules of search spaces. Importing this registers them, in the order in which they are judged."""

from __future__ import annotations

from crossbreed.core.conformance.spaces import growing, proposals  # noqa: F401
from crossbreed.core.conformance.spaces.subject import SpaceSubject

SUBJECT = SpaceSubject
