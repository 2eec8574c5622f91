"""Storage of searches: SQLite in a file by default, PostgreSQL by URL. Start at ``Repository.open(url)``."""

from __future__ import annotations

from crossbreed.storage.database import Database
from crossbreed.storage.drivers import Driver
from crossbreed.storage.locations import redacted
from crossbreed.storage.repository import Repository

__all__ = ["Database", "Driver", "Repository", "redacted"]
