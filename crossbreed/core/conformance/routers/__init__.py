"""Rules of routers. Importing this registers them, in the order in which they are judged."""

from __future__ import annotations

from crossbreed.core.conformance.routers import account, choices, draws, learning, time  # noqa: F401
from crossbreed.core.conformance.routers.subject import RouterSubject

SUBJECT = RouterSubject
