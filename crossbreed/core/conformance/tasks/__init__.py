"""Rules of tasks. Importing this registers them, in the order in which they are judged."""

from __future__ import annotations

from crossbreed.core.conformance.tasks import answers, data  # noqa: F401
from crossbreed.core.conformance.tasks.subject import TaskSubject

SUBJECT = TaskSubject
