"""The user's cache: a folder for what can be made again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "CROSSBREED_CACHE"
"""Environment variable: the folder, where it is not to lie in the user's own cache."""


def cache_folder() -> Path:
    """Where what can be made again is kept: CROSSBREED_CACHE, or the user's cache. It need not exist yet."""
    named = os.environ.get(CACHE)
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(named).expanduser() if named else Path(user).expanduser() / "crossbreed"
