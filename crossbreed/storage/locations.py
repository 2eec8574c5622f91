"""Where a database lies: URLs, the artefacts beside it, and the file systems SQLite must not be on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from crossbreed.core.artefacts import Artefacts
from crossbreed.core.errors import StorageError

ARTEFACTS = "CROSSBREED_ARTEFACTS"

_SECRET_KEYS = ("password", "sslpassword")

# Between hosts these keep neither SQLite's locks nor its shared-memory index coherent; users of other tools have
# met malformed files and locks that never end. 9p and virtiofs serve one guest and are left alone.
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ncpfs", "davfs", "sshfs", "s3fs", "gcsfuse"}
    | {"ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2", "gfs2"}
)


@dataclass(frozen=True)
class Mount:
    """One line of the mount table."""

    point: str
    filesystem: str


def parse_url(url: str) -> URL:
    """An SQLAlchemy URL from a URL or a plain path.

    ``postgresql://`` means psycopg 3; a path without a scheme is a SQLite file; SQLite paths become absolute.
    Raises StorageError for other databases, an unreadable URL or SQLite without a file.
    """
    try:
        parsed = make_url(url) if "://" in url else URL.create("sqlite", database=url)
    except (ArgumentError, ValueError) as error:
        raise StorageError(
            "the database URL cannot be read; write sqlite:///file.db or postgresql://user@host/name."
        ) from error
    backend = parsed.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise StorageError(
            f"database {redacted(url)!r} is of kind {backend!r}; sqlite:///file.db and postgresql://... are supported."
        )
    if not parsed.database or parsed.database == ":memory:":
        raise StorageError(
            f"database {redacted(url)!r} names no file; a search and its readers share a file, such as sqlite:///crossbreed.db."
        )
    return URL.create("sqlite", database=str(Path(parsed.database).expanduser().absolute()))


def redacted(url: str | URL) -> str:
    """The URL without its password, wherever the password stands; safe for messages, logs and records."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return url if isinstance(url, str) and "://" not in url else "(unreadable database URL)"
    if parsed.drivername == "postgresql+psycopg":
        parsed = parsed.set(drivername="postgresql")
    hidden = {k: "***" for k in parsed.query if k.lower() in _SECRET_KEYS}
    # Brackets and stars would be percent-encoded in a query, and nobody would read them as "hidden".
    return parsed.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A", "*")


def artefacts_of(url: str | URL) -> Artefacts:
    """``x.db`` keeps its artefacts in ``x-artefacts`` beside it; a server's are in ./crossbreed-artefacts.

    The environment variable of ``ARTEFACTS`` names another place: a folder or an fsspec URL that all hosts of a cluster see, say.
    """
    named = os.environ.get(ARTEFACTS)
    if named:
        return Artefacts.at(named)
    parsed = url if isinstance(url, URL) else parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        file = Path(str(parsed.database))
        return Artefacts.at(file.with_name(f"{file.stem}-artefacts"))
    return Artefacts.at("crossbreed-artefacts")


def mount_table(text: str | None = None) -> list[Mount]:
    """Mounts of this machine from /proc/mounts (or ``text`` in its format); empty where there is no such file."""
    if text is None:
        file = Path("/proc/mounts")
        text = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""
    fields = [line.split() for line in text.splitlines()]
    return [Mount(_unescape(f[1]), f[2]) for f in fields if len(f) >= 3]


def network_filesystem(path: str | Path, mounts: Iterable[Mount] | None = None) -> str | None:
    """The file system's name when ``path`` lies on a network file system, else None.

    ``path`` need not exist yet. Of several mounts at one point the last one counts, as it hides the others.
    """
    target = Path(path).resolve()
    best: Mount | None = None
    for mount in mount_table() if mounts is None else mounts:
        inside = target.is_relative_to(mount.point)
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    if best is None:
        return None
    kind = best.filesystem.lower().removeprefix("fuse.")
    return best.filesystem if kind in _NETWORK else None


def _unescape(text: str) -> str:
    """The mount table writes blanks and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)
