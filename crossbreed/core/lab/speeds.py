"""What came of timing a mixer's backends, kept in the user's cache by everything that it depends on.

The first answer stays: a candidate that comes again is not computed otherwise because a clock said so. Where several hosts work on
one study, their CROSSBREED_CACHE names one folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossbreed.core.cache import cache_folder
from crossbreed.core.errors import ConfigError

FOLDER = "speeds"
Settled = dict[str, list[dict[str, Any]]]
"""By the name of a device, the fields of each ``Speed`` that mixers of one candidate are built by there."""


@dataclass(frozen=True)
class Speed:
    """What a mixer is built with on a device where it has a choice, and how fast its rivals are there.

    sublayer: digest of the sublayer that holds it. backend: what it is built with. seconds: of one training pass of the mixer
    alone at ``batch`` x ``tokens``, by what computes it. left_out: why others were not timed.
    """

    mixer: str
    sublayer: str
    device: str
    dtype: str
    batch: int
    tokens: int
    backend: str
    seconds: dict[str, float]
    left_out: dict[str, str]


def read(key: dict[str, Any]) -> Speed | None:
    """What was answered before, as far as it can be read. Raises ConfigError for a file that holds no answer."""
    path = _path(key)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        return Speed(**json.loads(text)["speed"])
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"{str(path)!r} holds no speed of a mixer ({error}); remove it.") from error


def keep(key: dict[str, Any], speed: Speed) -> Speed:
    """Keep an answer, and return the one that counts: the earlier one where another worker was faster.

    Raises OSError where nothing can be written.
    """
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".") as draft:
        json.dump({"key": key, "speed": asdict(speed)}, draft, indent=1)
        draft.flush()
        # A cache that several users share is read by all of them.
        os.fchmod(draft.fileno(), 0o644)
        try:
            # All of it or nothing, and never over another.
            os.link(draft.name, path)
        except FileExistsError:
            return read(key) or speed
    return speed


def _path(key: dict[str, Any]) -> Path:
    text = json.dumps(key, sort_keys=True)
    return cache_folder() / FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
