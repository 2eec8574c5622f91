"""Names of artefacts, which stay inside their place whatever they say, and places without secrets."""

from __future__ import annotations

import re

from crossbreed.core.errors import ConfigError

HIDDEN = "."
"""What the last part of a name begins with that is no artefact: a draft, a trial whether the place can be written."""

_UNFIT = re.compile(r"[\x00-\x1f\x7f\\]")
_PORT = re.compile(r"[^:/]*:\d+(/|$)")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def confined(name: str) -> str:
    """``name`` itself. Raises ConfigError unless it is relative and leads nowhere but down: no scheme, no ``..``, no empty part,
    no backslash, no control character, nothing hidden at its end."""
    parts = name.split("/")
    if (
        _UNFIT.search(name)
        or "://" in name
        or "::" in name
        or any(part in ("", ".", "..") for part in parts)
        or parts[-1].startswith(HIDDEN)
    ):
        raise ConfigError(
            f"artefact name {name!r} breaks the rule: relative to its place and inside it, parts separated by '/'."
        )
    return name


def split_url(place: str) -> tuple[str, str] | None:
    """Scheme and rest of a URL; None for a path of this machine.

    Raises ConfigError for a chain of URLs, and for one with a password: places are printed, and handed to workers.
    """
    if "::" in place and "://" in place:
        # Only the beginning is shown: a password may stand in any of them.
        raise ConfigError(
            f"artefacts '{place.partition(':')[0]}:...' are a chain of URLs; they must be one, such as s3://bucket/folder."
        )
    found = _URL.fullmatch(place)
    if found is None:
        return None
    scheme, rest = found[1].lower(), found[2]
    user, at, host = rest.rpartition("@")
    # A password may hold slashes; a port does not make one.
    if at and ":" in user and not _PORT.match(user):
        raise ConfigError(
            f"artefacts '{scheme}://***@{host}' name a password; leave it out of the URL and give it to fsspec, in its configuration "
            f"or a variable FSSPEC_{scheme.upper()}_OPTION."
        )
    return scheme, rest.rstrip("/")
