"""Names that are unknown because a plugin file was not given: studies of the database keep those that they used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crossbreed.core.errors import ConfigError, PluginError, StorageError, UnknownName
from crossbreed.core.host import KIND_LABELS


def explained(error: ConfigError, db: str, given: Sequence[Path] | None) -> ConfigError:
    """An error that names the plugin file to give, where one that a study of ``db`` used offers the unknown name; else the
    same error."""
    unknown: BaseException | None = error
    while unknown is not None and not isinstance(unknown, UnknownName):
        unknown = unknown.__cause__
    if unknown is None or unknown.kind not in KIND_LABELS.values():
        return error
    path = _provider(unknown.name, db)
    if path is None or path in {str(file.absolute()) for file in given or ()}:
        return error
    return PluginError(
        f"{unknown.kind} {unknown.name!r} comes from plugin file {path}, which was not given; add --plugin {path}"
    )


def _provider(name: str, db: str) -> str | None:
    from crossbreed.core.search.plugin_files import provider
    from crossbreed.storage.repository import Repository

    try:
        with Repository.open(db, read_only=True, create=False) as repository:
            found = provider(repository, name)
    except StorageError:
        # Without a database nobody knows the name, which is what the error says already.
        return None
    return None if found is None else found.path
